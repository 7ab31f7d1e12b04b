"""A run whose steps are complete is judged, whatever became of its command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reprise.core.errors import OperatorError
from reprise.core.project import Project, find_project
from reprise.flows.reproduce import judge_folder
from reprise.runs.state.folder import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A recorded seed as a run of its own, whose command ended as failed."""
    recorded = find_project().recipes / "rehearsal/reference" / "seed-101.jsonl"
    folder = RunFolder.create(tmp_path / "runs", "rehearsal", {"steps": 40, "state": "failed"})
    shutil.copyfile(recorded, folder.metrics_file(1))
    folder.begin_attempt(None)
    return folder


def project() -> Project:
    return find_project()


def test_complete_steps_are_judged_with_a_warning(run: RunFolder) -> None:
    run.event("changed", after=12, inputs=[f"code/{name}.py" for name in "abcde"])
    report = judge_folder(project(), "rehearsal", run.path).report
    told = [finding.message for finding in report.findings if finding.rule == "run-state"]
    assert told == [
        "the state is 'failed', and all 40 steps are recorded: judged by them",
        "after step 12 it went on with other inputs, as forced: "
        "code/a.py, code/b.py, code/c.py and 2 more",
    ]
    assert (run.path / "verdict.json").is_file()


def test_a_step_that_is_missing_is_not(run: RunFolder) -> None:
    lines = run.metrics_file(1).read_text(encoding="utf-8").splitlines(keepends=True)
    run.metrics_file(1).write_text("".join(lines[:-1]), encoding="utf-8")
    with pytest.raises(OperatorError, match="found state 'failed'"):
        judge_folder(project(), "rehearsal", run.path)
