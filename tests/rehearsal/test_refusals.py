"""What cannot be run is refused before anything is made or started."""

from __future__ import annotations

import pytest

from reprise.core.errors import OperatorError
from reprise.core.project import find_project
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions
from reprise.lock.read import read_lock
from reprise.rehearsal.shapes import ARCHITECTURES, DEFAULT_ARCH


def test_each_shape_is_one_of_a_class_and_its_start_model_is_locked() -> None:
    locked = read_lock(find_project().lock).shipped
    assert all(shape.model.endswith("ForCausalLM") for shape in ARCHITECTURES.values())
    assert {shape.start_model for shape in ARCHITECTURES.values()} - {""} <= set(locked)
    assert ARCHITECTURES[DEFAULT_ARCH].start_model
    # SGLang runs the shipped models only (flows/rehearsal.py).
    assert all(shape.start_model for shape in ARCHITECTURES.values() if shape.sglang)


def test_an_architecture_that_nobody_builds_is_refused_with_those_that_are() -> None:
    with pytest.raises(OperatorError) as caught:
        Rehearsal(find_project(), RehearsalOptions(arch="foo", quiet=True))
    assert (caught.value.rule, caught.value.where) == ("rehearsal-arch", "foo")
    assert caught.value.fix == f"one of: {', '.join(ARCHITECTURES)}"


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
