"""`reprise rehearsal shape`: what it takes of a recipe, and what it says of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reprise.core.errors import CannotTell
from reprise.core.findings import Report, Verdict
from reprise.core.project import Project
from reprise.flows import shape
from reprise.flows.rehearsal import Ended, Rehearsal, RehearsalOptions
from reprise.flows.shape import rehearse_shape, shape_options
from reprise.recipe.folders import recipe_names
from reprise.recipe.load import load
from reprise.rehearsal.shapes import ARCHITECTURES
from reprise.runs.state.folder import RunFolder

PROJECT = Project(Path(__file__).resolve().parents[2])
TWO = RehearsalOptions(steps=2, quiet=True)
SAMPLED = {
    "glm45-air": ("glm4-moe", "drgrpo", "temperature=0.8", "top_k=100"),
    "dapo-qwen25-32b": ("qwen2", "dapo", "temperature=1.0", "top_k=-1"),
    "llama31-8b": ("llama", "drgrpo", "temperature=0.8", "top_k=100"),
    "qwen3-32b-mi300x": ("qwen3", "drgrpo", "temperature=0.8", "top_k=100"),
    "hy3": ("hy3", "drgrpo", "temperature=0.9", "top_k=-1"),
}


@pytest.mark.parametrize("recipe", SAMPLED)
def test_class_algorithm_and_sampling_are_the_recipes(recipe: str) -> None:
    arch, algorithm, temperature, top_k = SAMPLED[recipe]
    found = shape_options(PROJECT, recipe, replace(TWO, overrides=("trainer.test_freq=-1",)))
    assert (found.arch, found.algo, found.steps) == (arch, algorithm, 2)
    assert f"actor_rollout_ref.rollout.{temperature}" in found.overrides
    assert f"actor_rollout_ref.rollout.{top_k}" in found.overrides
    assert found.overrides[-1] == "trainer.test_freq=-1", "the user's settings come last"
    penalty = recipe == "dapo-qwen25-32b"
    assert ("rehearsal/overlong=read" in found.overrides) is penalty


def test_each_shipped_recipe_has_a_tiny_model() -> None:
    for name in recipe_names(PROJECT.recipes):
        shape_options(PROJECT, name, TWO)


@pytest.mark.rehearsal
@pytest.mark.parametrize("recipe", SAMPLED)
def test_hydra_takes_the_settings(recipe: str) -> None:
    options = shape_options(PROJECT, recipe, TWO)
    rehearsal = Rehearsal(PROJECT, options)
    config = rehearsal._compose(rehearsal._overrides())
    of_recipe = load(PROJECT.root, recipe).composition.values
    for part in ("temperature", "top_p", "top_k"):
        ours, theirs = (c["actor_rollout_ref"]["rollout"][part] for c in (config, of_recipe))
        assert ours == theirs
    assert config["algorithm"]["adv_estimator"] == of_recipe["algorithm"]["adv_estimator"]


def test_a_family_without_a_tiny_model_is_unknown_and_runs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shape, "arch_of", lambda _: None)
    with pytest.raises(CannotTell) as caught:
        shape_options(PROJECT, "glm45-air", TWO)
    assert "glm4_moe" in caught.value.message
    assert all(item.model_type in caught.value.message for item in ARCHITECTURES.values())


@pytest.mark.parametrize(
    ("rewards", "verdict"),
    [
        ([0.5, 0.25], Verdict.OK),
        ([0.5, float("nan")], Verdict.PROBLEM),
        ([0.5], Verdict.PROBLEM),
        ([], Verdict.PROBLEM),
    ],
)
def test_a_step_without_a_number_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewards: list[float], verdict: Verdict
) -> None:
    folder = RunFolder.create(tmp_path, "rehearsal", {"steps": 2})
    rows = [{"step": step, "data": {"training/rollout_probs_diff_mean": 0.01}} for step in (1, 2)]
    for row, reward in zip(rows, rewards, strict=False):
        row["data"]["critic/rewards/mean"] = reward  # type: ignore[index]
    file = folder.metrics_file(1)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(Rehearsal, "run", lambda _: Ended(folder, None, None))
    report = rehearse_shape(PROJECT, "glm45-air", shape_options(PROJECT, "glm45-air", TWO))
    assert report.verdict is verdict
    assert report.data["model"] == "Glm4MoeForCausalLM"
    if verdict is Verdict.OK:
        (note,) = report.findings
        assert "2 steps of a tiny Glm4MoeForCausalLM with drgrpo" in note.message
        assert "0.5000, 0.2500" in note.message


def test_a_job_that_fails_is_the_report_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Report("reproduce")
    failed.failed("rehearsal-shape.no-number", "x", metric="m", found="none", steps=2, run="r")
    folder = RunFolder.create(tmp_path, "rehearsal", {"steps": 2})
    monkeypatch.setattr(Rehearsal, "run", lambda _: Ended(folder, None, failed))
    report = rehearse_shape(PROJECT, "glm45-air", shape_options(PROJECT, "glm45-air", TWO))
    assert (report.command, report.verdict) == ("rehearsal shape", Verdict.PROBLEM)
