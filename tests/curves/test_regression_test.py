"""The regression test tells honest runs from broken ones, and never passes without a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from curves.runs import records, write, write_reference

ROOT = Path(__file__).resolve().parents[2]


def add_run(root: Path, name: str, rate: float, state: str = "finished") -> Path:
    run = root / "runs" / "toy" / name
    write(run / "metrics" / "attempt-1.jsonl", records(300, rate=rate))
    facts = {"model": "toy", "state": state, "steps": 40, "seed": 300}
    (run / "run.json").write_text(json.dumps(facts))
    return run


def regression(root: Path, *arguments: str) -> int:
    """Exit code of the regression test with `root` in the place of the project."""
    folder = str(ROOT / "tests" / "regression")
    fixed = ["-m", "regression", "--root", str(root), "-p", "no:cacheprovider"]
    return int(pytest.main([folder, *fixed, *arguments]))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_reference(tmp_path / "recipes" / "toy" / "reference", 6)
    return tmp_path


def test_a_missing_run_is_an_error(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_run(root, "20260101T000000Z-a", 1.0, state="failed")
    assert regression(root) == 1
    assert "no finished run" in capsys.readouterr().out


def test_the_newest_finished_run_is_judged(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_run(root, "20260101T000000Z-a", 0.0)
    add_run(root, "20260102T000000Z-b", 1.0)
    add_run(root, "20260103T000000Z-c", 0.0, state="running")
    assert regression(root) == 0
    add_run(root, "20260104T000000Z-d", 0.0)
    assert regression(root) == 1
    assert "FAILED  reward" in capsys.readouterr().out


def test_a_named_run_is_judged_instead(root: Path) -> None:
    good = add_run(root, "20260101T000000Z-a", 1.0)
    add_run(root, "20260102T000000Z-b", 0.0)
    assert regression(root, "--run", str(good)) == 0
