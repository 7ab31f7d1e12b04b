"""References made of any runs, and what is said of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from curves.runs import records, write
from typer.testing import CliRunner

from reprise.cli import app
from reprise.curves import load_reference

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "recipes/rehearsal/reference"


def call(*words: object) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    return done.exit_code, json.loads(done.stdout)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [write(tmp_path / f"run-{seed}.jsonl", records(seed)) for seed in range(1, 7)]


def test_a_reference_of_files_judges_another_run(tmp_path: Path, files: list[Path]) -> None:
    made = tmp_path / "mine"
    code, report = call("reference", "create", made, *files[:5])
    assert (code, report["runs"], report["steps"]) == (0, 5, 40)
    reference = load_reference(made)
    assert reference.metrics.kl is not None and reference.metrics.validation is not None
    assert not list(tmp_path.glob("*.tmp"))
    code, report = call("curves", "compare", files[5], "--reference", made)
    assert (code, report["judgement"]["outcome"]) == (0, "PASS")
    frozen = write(tmp_path / "frozen.jsonl", records(9, rate=0.0))
    assert call("curves", "compare", frozen, "--reference", made)[0] == 1


def test_a_created_reference_is_not_overwritten(tmp_path: Path, files: list[Path]) -> None:
    call("reference", "create", tmp_path / "mine", *files[:2])
    code, report = call("reference", "create", tmp_path / "mine", *files[:3])
    assert code == 1 and "reference replace" in report["findings"][0]["fix"]
    assert len(load_reference(tmp_path / "mine").runs) == 2


def test_replacing_keeps_the_old_one_and_records_the_shift(
    tmp_path: Path, files: list[Path]
) -> None:
    call("reference", "create", tmp_path / "mine", *files[:3])
    code, report = call(
        "reference", "replace", tmp_path / "mine", *files[2:6], "--reason", "a new image"
    )
    assert code == 0
    assert len(load_reference(Path(report["kept"])).runs) == 3
    reference = load_reference(tmp_path / "mine")
    assert len(reference.runs) == 4
    assert reference.provenance["replaced"]["reason"] == "a new image"
    assert any("+" in row or "-" in row for row in reference.provenance["shifts"])
    text = CliRunner().invoke(
        app, ["reference", "compare", str(tmp_path / "mine"), str(report["kept"])]
    )
    assert text.exit_code == 0 and "critic/rewards/mean" in text.stdout


def test_runs_that_differ_are_refused(tmp_path: Path) -> None:
    runs = []
    for number, batch in enumerate((128, 64)):
        run = tmp_path / f"run-{number}"
        write(run / "metrics/attempt-1.jsonl", records(number))
        facts = {"model": "toy", "state": "finished", "steps": 40, "seed": number}
        (run / "run.json").write_text(json.dumps(facts))
        config = {"actor_rollout_ref": {}, "data": {"train_batch_size": batch}}
        (run / "config.yaml").write_text(json.dumps(config))
        runs.append(run)
    code, report = call("reference", "create", tmp_path / "mine", *runs)
    assert code == 1
    assert "data.train_batch_size: 64 (reference 128)" in report["findings"][0]["message"]
    accepted = ("--accept", "data.train_batch_size")
    assert call("reference", "create", tmp_path / "mine", *runs, *accepted)[0] == 0
    # The configuration is recorded, and compared with that of a judged run.
    _, judged = call("curves", "compare", runs[1], "--reference", tmp_path / "mine")
    checks = {check["rule"]: check for check in judged["judgement"]["checks"]}
    assert "train_batch_size" in checks["comparable"]["message"]
    assert checks["comparable"]["state"] == "unknown"


def test_a_recipes_reference_is_shown() -> None:
    code, report = call("reference", "show", "rehearsal")
    assert (code, report["runs"], report["steps"]) == (0, 5, 40)
    assert "minimum detectable drop" in report["detects"]
    code, report = call("reference", "show", "nothing")
    assert code == 1 and "rehearsal" in report["findings"][0]["message"]


def test_several_references_each_give_a_verdict(tmp_path: Path) -> None:
    run = tmp_path / "run.jsonl"
    shutil.copy(RECORDED / "seed-101.jsonl", run)
    code, report = call(
        *("curves", "compare", run, "--reference", "rehearsal", "--reference", "hy3"),
    )
    assert code == 2
    assert [item["outcome"] for item in report["judgements"]] == ["PASS", "INCONCLUSIVE"]


def test_any_file_is_judged_by_a_recipes_reference(tmp_path: Path) -> None:
    lines = (ROOT / "recipes/hy3/reference/curves.csv").read_text(encoding="utf-8").splitlines()
    rows = [line.split(",") for line in lines[1:]]
    text = "\n".join(
        f"{m},{s},{float(v) * (0.97 if 'reward' in m else 1)!r}" for m, s, v, _ in rows
    )
    (tmp_path / "run.csv").write_text("metric,step,value\n" + text + "\n")
    out = tmp_path / "out"
    code, report = call("reproduce", "hy3", "--run", tmp_path / "run.csv", "--out", out)
    assert code == 2 and report["judgement"]["outcome"] == "INCONCLUSIVE"
    assert {path.name for path in out.iterdir()} == {"verdict.json", "curves.png", "report.html"}
