"""Recorded real runs with one defect (benchmarks/sabotage): none may PASS."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from reprise.core.files import sha256_file
from reprise.curves import Judgement, Outcome, judge_run, load_reference
from reprise.curves.judge import JudgeOptions
from reprise.metrics import read_run

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "benchmarks/sabotage"
RECORDED = json.loads((HERE / "recordings.json").read_text(encoding="utf-8"))
DEFECTIVE = sorted(name for name, fact in RECORDED.items() if fact["defect"] != "none")


def judged(name: str) -> Judgement:
    reference = load_reference(ROOT / "recipes/rehearsal/reference")
    steps = min(RECORDED[name]["steps"], reference.steps)
    table = read_run(HERE / f"runs/{name}.jsonl")
    return judge_run(table, reference, steps, options=JudgeOptions(accepted=("length",)))


@pytest.mark.parametrize("name", DEFECTIVE)
def test_a_real_run_with_one_defect_does_not_pass(name: str) -> None:
    found = judged(name)
    assert found.outcome is Outcome.FAIL, found.text()


def test_the_correct_run_of_the_same_seed_passes() -> None:
    """Made without the kit; it is none of the runs whose spread the verdict borrows."""
    found = judged("correct-1")
    assert found.outcome is Outcome.PASS, found.text()


def test_a_run_is_the_correct_one_until_its_defect_acts() -> None:
    """Stale weights from step 11 on: the samples of the first ten steps are those of seed 1."""
    reward = "critic/rewards/mean"
    correct = read_run(HERE / "runs/correct-1.jsonl").series(reward).values
    stale = read_run(HERE / "runs/stale-weights-1.jsonl").series(reward).values
    assert stale[:10].tolist() == correct[:10].tolist()
    assert stale[10:].tolist() != correct[10:30].tolist()


def test_recordings_are_whole_and_under_the_references_inputs() -> None:
    reference = load_reference(ROOT / "recipes/rehearsal/reference").provenance
    files = {path.stem for path in (HERE / "runs").glob("*.jsonl")}
    assert files == RECORDED.keys() and DEFECTIVE
    for name, fact in RECORDED.items():
        assert sha256_file(HERE / f"runs/{name}.jsonl") == fact["sha256"]
        for key in ("lock", "plugins", "model_sha256", "data_sha256"):
            assert fact[key] == reference[key], (name, key)
        assert read_run(HERE / f"runs/{name}.jsonl").training_steps()[-1] == fact["steps"]


def test_every_recorded_defect_is_one_of_the_kit_and_described() -> None:
    tree = ast.parse((HERE / "defects.py").read_text(encoding="utf-8"))
    table = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "DEFECTS"
    )
    assert isinstance(table, ast.Dict)
    known = {ast.literal_eval(key) for key in table.keys if key is not None}
    assert {fact["defect"] for fact in RECORDED.values()} <= known
    described = (HERE / "README.md").read_text(encoding="utf-8")
    assert [name for name in sorted(known) if name not in described] == []
