"""What cannot be run is refused before anything is made or started."""

from __future__ import annotations

import ast

import pytest

from reprise.core.errors import OperatorError
from reprise.core.project import find_project
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions
from reprise.rehearsal.model import ARCHITECTURES, BUILDER


def test_the_architectures_are_those_of_the_builder() -> None:
    # Read, not imported: it needs torch.
    (made,) = [
        node.value
        for node in ast.parse(BUILDER.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ARCHITECTURES"
    ]
    assert isinstance(made, ast.Dict)
    assert tuple(key.value for key in made.keys if isinstance(key, ast.Constant)) == ARCHITECTURES


def test_an_architecture_that_nobody_builds_is_refused_with_those_that_are() -> None:
    with pytest.raises(OperatorError) as caught:
        Rehearsal(find_project(), RehearsalOptions(arch="foo", quiet=True))
    assert (caught.value.rule, caught.value.where) == ("rehearsal-arch", "foo")
    assert caught.value.fix == "one of: hy3, qwen3-moe, qwen3"


@pytest.mark.rehearsal
@pytest.mark.parametrize(
    "options",
    [
        RehearsalOptions(algo="foo", quiet=True),
        RehearsalOptions(overrides=("data.train_batch=3",), quiet=True),
        RehearsalOptions(overrides=("rehearsal/arch=foo",), quiet=True),
    ],
    ids=["algo", "override", "group"],
)
def test_what_hydra_refuses_is_told_before_anything_is_made(
    options: RehearsalOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in ("prepare", "remove_leftovers"):
        monkeypatch.setattr(Rehearsal, step, lambda _: pytest.fail("too late"))
    with pytest.raises(OperatorError) as caught:
        Rehearsal(find_project(), options).run()
    assert caught.value.rule.startswith("recipe-override-")
    assert caught.value.fix
