"""The lists of commands for a visit to a GPU, and those of past visits."""

from __future__ import annotations

import importlib
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
VISIT = ROOT / "scripts/gpu/visit.py"
HISTORY = ROOT / "benchmarks/gpu/history/visits_2026_11_29.py"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "variables.json").write_text("{}", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("script", "stage"),
    [(VISIT, "references"), (VISIT, "parity_alone"), (HISTORY, "seeds"), (HISTORY, "more")],
)
def test_each_command_waits_only_for_commands_of_its_list(
    out: Path, script: Path, stage: str
) -> None:
    jobs: list[dict[str, Any]] = runpy.run_path(str(script))[stage](out)
    names = [job["name"] for job in jobs]
    assert len(names) == len(set(names)) > 2
    for number, job in enumerate(jobs):
        assert set(job.get("after", ())) <= set(names[:number]), job["name"]
        files = [word for word in job["command"] if word.startswith(f"{ROOT}/scripts/")]
        assert all(Path(word).is_file() for word in files)


@pytest.mark.parametrize("stage", ["sglang", "real", "both"])
def test_the_stages_of_sglang_are_complete(
    out: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(VISIT.parent))
    visit_sglang = importlib.import_module("visit_sglang")
    (out / "variables-sglang.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(visit_sglang, "prepare", lambda _: None)
    jobs: list[dict[str, Any]] = getattr(visit_sglang, stage)(out)
    names = [job["name"] for job in jobs]
    assert len(names) == len(set(names)) > 2
    for job in jobs:
        waits = {*job.get("after", ()), *job.get("once", ())}
        assert waits <= set(names), job["name"]
        assert 0 < job["limit_s"] <= 1200
        files = [word for word in job["command"] if word.startswith(f"{ROOT}/scripts/")]
        assert all(Path(word).is_file() for word in files)
    chosen = runpy.run_path(str(VISIT))["chosen"](jobs, [names[-1]])
    assert chosen[-1]["name"] == names[-1]
    kept = [job["name"] for job in chosen]
    assert all({*job.get("after", ()), *job.get("once", ())} <= set(kept) for job in chosen)


@pytest.mark.parametrize("script", [VISIT, HISTORY])
def test_an_unknown_stage_prints_the_stages(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runpy.run_path(str(script))["main"](["nothing", "out"]) == 2
    assert "Stages:" in capsys.readouterr().err
