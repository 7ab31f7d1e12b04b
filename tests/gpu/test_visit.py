"""The lists of commands for a visit to a GPU, and those of past visits."""

from __future__ import annotations

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


@pytest.mark.parametrize("script", [VISIT, HISTORY])
def test_an_unknown_stage_prints_the_stages(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runpy.run_path(str(script))["main"](["nothing", "out"]) == 2
    assert "Stages:" in capsys.readouterr().err
