"""A run is named by its id wherever its folder is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reprise.cli import app

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "recipes" / "rehearsal" / "reference" / "seed-101.jsonl"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "rehearsal" / "20260101T000000Z-abc123"
    (folder / "metrics").mkdir(parents=True)
    shutil.copy(RECORDED, folder / "metrics" / "attempt-1.jsonl")
    facts = {"state": "finished", "model": "rehearsal", "steps": 40, "seed": 101}
    (folder / "run.json").write_text(json.dumps(facts))
    monkeypatch.setenv("RUNS_DIR", str(tmp_path))
    return "abc123"


def answer(*words: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, [*words, "--json"])
    return done.exit_code, json.loads(done.stdout)


def test_every_command_about_curves_takes_an_id(run: str) -> None:
    assert answer("curves", "show", run)[0] == 0
    assert answer("curves", "compare", run, "--reference", "rehearsal")[0] == 0
    _, by_another = answer("curves", "compare", str(RECORDED), "--reference", run)
    assert by_another["verdict"] in ("ok", "unknown")
    code, judged = answer("reproduce", "--run", run)
    assert code in (0, 2) and judged["run"].endswith(run)


@pytest.mark.parametrize(
    "words",
    [
        ("curves", "show", "nope"),
        ("curves", "compare", "nope", "--reference", "rehearsal"),
        ("reproduce", "--run", "nope"),
    ],
    ids=" ".join,
)
def test_a_name_that_is_no_run_is_told_with_the_newest(run: str, words: tuple[str, ...]) -> None:
    code, report = answer(*words)
    assert (code, report["findings"][0]["rule"]) == (1, "run-unknown")
    assert run in report["findings"][0]["message"]


def test_a_name_that_is_no_reference_is_told_with_those_that_are(run: str) -> None:
    code, report = answer("curves", "compare", run, "--reference", "nope")
    assert (code, report["findings"][0]["rule"]) == (1, "reference")
    assert "a reference (hy3, " in report["findings"][0]["message"]


def test_a_metric_that_is_nearly_one_is_told(run: str) -> None:
    code, report = answer("curves", "show", run, "--metric", "critic/reward/mean")
    assert code == 1
    assert "did you mean critic/rewards/mean" in report["findings"][0]["message"]


def test_names_and_empty_columns_are_shown_whole(tmp_path: Path) -> None:
    name = "val/[gsm8k]/" + "long/" * 20 + "mean"
    lines = [{"step": 1, "data": {name: 1.0, "empty": None}}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = CliRunner().invoke(app, ["curves", "show", str(tmp_path / "a.jsonl")]).stdout
    assert name in shown
    assert shown.count("no finite value") == 4
