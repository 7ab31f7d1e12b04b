"""`recipe check`: what a recipe card names must be in the lock, for the recipe's machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.core.findings import Verdict
from reprise.core.project import Project
from reprise.flows.recipe import check_recipe
from reprise.recipe.card import ModelPart
from reprise.recipe.load import Loaded, load

PROJECT = Project(Path(__file__).resolve().parents[2])
RULE = "recipe-card-lock"


def found(loaded: Loaded) -> list[str]:
    report = check_recipe(PROJECT, loaded)
    states = {check.state.value for check in report.checks if check.rule == RULE}
    messages = [item.message for item in report.findings if item.rule == RULE]
    assert states == ({"failed"} if messages else {"passed"})
    return messages


def test_a_name_that_the_lock_lacks_is_an_error() -> None:
    loaded = load(PROJECT.root, "qwen3-8b")
    assert found(loaded) == []
    card = loaded.card
    loaded.card = card.model_copy(
        update={
            "model": ModelPart(lock="mine", config=card.model.config),
            "machine": card.machine.model_copy(update={"image": "h20"}),
            "train": "my-data",
        }
    )
    first, second, third = found(loaded)
    assert first.startswith("model.mine is not in versions.lock")
    assert second == "image.h20 of versions.lock is not for musa, the machine of this recipe"
    assert third.startswith("data.my-data is not in versions.lock")


@pytest.mark.parametrize(
    "name",
    [
        *("dapo-qwen25-32b", "glm45-air", "llama31-8b", "qwen25-7b", "qwen3-32b"),
        "qwen3-32b-mi300x",
    ],
)
def test_the_recipes_made_by_the_command_pass(name: str) -> None:
    loaded = load(PROJECT.root, name)
    report = check_recipe(PROJECT, loaded)
    assert [item.message for item in report.errors()] == []
    assert report.verdict is Verdict.OK
    assert loaded.card.status == "checked statically"
