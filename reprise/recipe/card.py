"""The recipe card: facts of a recipe that are not settings of verl."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reprise.core.errors import OperatorError
from reprise.recipe.folders import home_of
from reprise.recipe.model import Model

__all__ = ["Card", "card_of"]

Status = Literal["run here", "checked statically", "not run"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class VerlPart(_Part):
    """Which verl: its entry in the lock, and the release to use without a checkout.

    Without an entry the recipe runs the release itself.
    """

    lock: str = "verl"
    release: str = "0.9.1"


class MachinePart(_Part):
    """Names of the machine profile and the image, and the GPU facts that the plan needs.

    `gpu_memory` is the accelerator's memory in GiB as its tool reports it, `bf16_tflops` its
    dense peak, `host_memory` the RAM of a node in GiB (None: the site must state it).
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
    """A data file that the project writes itself: the end of its path, and its counts."""

    path: str
    rows: int
    unique_prompts: int


class Card(_Part):
    """recipes/<name>/card.toml. The settings of the training are in recipe.yaml.

    `train` and `validation` are the data sets' entries in the lock, `made` has the files of those
    names that are not locked, `reference` is the folder of the recorded runs, `trees` further trees
    that the nodes need, `expect` the expected results of a run.
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
        """The model as the recipe card states it, or None when it does not."""
        if not self.model.config:
            return None
        return Model(self.model.config, "card.toml")


def card_of(recipes: Path, name: str) -> Card:
    """The card of recipe `name`; an empty one when the recipe has no card.

    `recipes` is the project's own folder; the others are searched as well (folders.py).
    Raises OperatorError for an unknown recipe or an invalid card.
    """
    folder = home_of(recipes, name) / name
    file = folder / "card.toml"
    if not file.is_file():
        return Card(title=name, status="not run")
    try:
        return Card.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OperatorError("recipe-card.not-toml", str(file), reason=error) from error
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
            for item in error.errors()
        )
        raise OperatorError("recipe-card.invalid", str(file), faults=wrong) from error
