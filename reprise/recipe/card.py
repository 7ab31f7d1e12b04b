"""A recipe's card: what is not a setting of verl but belongs to the recipe."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reprise.core.errors import OperatorError
from reprise.recipe.model import Model

__all__ = ["Card", "card_of", "recipe_names"]

Status = Literal["run here", "checked statically", "not run"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class VerlPart(_Part):
    """Which verl: its entry in the lock, and the release that stands in without a checkout.

    Without an entry the release itself is what runs.
    """

    lock: str = "verl"
    release: str = "0.9.1"


class MachinePart(_Part):
    """Names of the machine profile and the image, and what the plan needs to know of a card.

    `gpu_memory` is the accelerator's memory in GiB as its tool reports it, `bf16_tflops` its
    dense peak, `host_memory` a node's RAM in GiB (None: the site must say).
    """

    profile: str
    image: str = ""
    gpu: str = ""
    gpu_memory: float | None = None
    bf16_tflops: float | None = None
    host_memory: float | None = None


class ModelPart(_Part):
    """The model's entry in the lock, and its shape in the names of its config.json."""

    lock: str = ""
    config: dict[str, Any] = Field(default_factory=dict)


class MadePart(_Part):
    """A data file that the project writes itself: the end of its path, and what is in it."""

    path: str
    rows: int
    unique_prompts: int


class Card(_Part):
    """recipes/<name>/card.toml. The values of the training itself stand in recipe.yaml.

    `train` and `validation` are the data sets' entries in the lock, `made` has the files of those
    names that no lock has, `reference` is the folder of the recorded runs, `trees` what else the
    nodes need, `expect` what a run should show.
    """

    title: str
    status: Status
    summary: str = ""
    machine: MachinePart = MachinePart(profile="cpu")
    verl: VerlPart = VerlPart()
    model: ModelPart = ModelPart()
    train: str = ""
    validation: str = ""
    made: dict[Literal["train", "validation"], MadePart] = Field(default_factory=dict)
    reference: str = ""
    trees: dict[str, str] = Field(default_factory=dict)
    expect: dict[str, Any] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)

    def model_shape(self) -> Model | None:
        """The model as the card states it, or None when it does not."""
        if not self.model.config:
            return None
        return Model(self.model.config, "card.toml")


def recipe_names(recipes: Path) -> list[str]:
    """The models that have a recipe, in the order of their names."""
    return sorted(path.parent.name for path in recipes.glob("*/recipe.yaml"))


def card_of(recipes: Path, name: str) -> Card:
    """The card of recipe `name`; a bare one when the recipe has no card.

    Raises OperatorError when there is no such recipe, or the card is not as it must be.
    """
    folder = recipes / name
    if not (folder / "recipe.yaml").is_file():
        known = ", ".join(recipe_names(recipes)) or "none"
        raise OperatorError("recipe-name.recipe-name", name, known=known)
    file = folder / "card.toml"
    if not file.is_file():
        return Card(title=name, status="not run")
    try:
        return Card.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OperatorError("recipe-card", str(file), str(error), "mend the TOML") from error
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
            for item in error.errors()
        )
        raise OperatorError("recipe-card", str(file), wrong, "mend the card") from error
