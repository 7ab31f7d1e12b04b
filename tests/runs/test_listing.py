"""The folder of runs: what it cannot be, and what of it cannot be looked into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reprise.cli import app
from reprise.core.errors import CannotTell, OperatorError
from reprise.runs.state.folder import RunFolder, find_run, recent_runs
from reprise.runs.state.listing import list_folder

COMMANDS = ["runs", "status", "logs", "stop x", "train --resume x"]


def answer(runs: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, dict[str, Any]]:
    monkeypatch.setenv("RUNS_DIR", str(runs))
    done = CliRunner().invoke(app, [*command.split(), "--json"])
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_in_the_place_of_the_runs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "file").write_text("x")
    for runs in (tmp_path / "file", tmp_path / "file" / "below"):
        code, report = answer(runs, command, monkeypatch)
        assert (code, report["findings"][0]["where"]) == (1, str(runs))
        assert report["findings"][0]["message"] == "expected a folder of runs, found a file"
        with pytest.raises(OperatorError, match="expected a folder"):
            recent_runs(runs, "rehearsal")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_cannot_be_read_is_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    # root may read whatever it likes; a link to itself nobody can.
    (tmp_path / "loop").symlink_to("loop")
    code, report = answer(tmp_path / "loop", command, monkeypatch)
    assert (code, report["verdict"]) == (2, "unknown")
    assert "the folder of runs cannot be read: " in report["findings"][0]["message"]


def test_what_cannot_be_looked_into_hides_no_other_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").symlink_to("closed")
    code, report = answer(tmp_path, "status", monkeypatch)
    assert (code, report["findings"][0]["where"]) == (2, str(tmp_path / "closed"))
    run = RunFolder.create(tmp_path, "open", {"steps": 2})
    code, report = answer(tmp_path, "runs", monkeypatch)
    assert (code, [row["id"] for row in report["runs"]]) == (2, [run.name])
    assert report["findings"][0]["where"] == str(tmp_path / "closed")
    assert answer(tmp_path, "runs open", monkeypatch)[0] == 0
    assert find_run(tmp_path, run.name) == run


def test_runs_of_another_recipe_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RunFolder.create(tmp_path, "open", {"steps": 2})
    for other in ("nope", "/etc", "*"):
        code, report = answer(tmp_path, f"runs {other}", monkeypatch)
        assert (code, report["runs"]) == (0, [])
        said = report["findings"][0]["message"]
        assert said == f"no runs of {other}; runs exist of open"
    _, report = answer(tmp_path / "nope", "runs", monkeypatch)
    assert report["findings"][0]["message"] == "no runs yet: the folder does not exist"


def test_the_newest_runs_are_so_by_their_time(tmp_path: Path) -> None:
    for name in ("b/20260101T000000Z-a", "a/20260102T000000Z-a"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.json").write_text("{}")
    assert [path.parent.name for path in list_folder(tmp_path).runs] == ["b", "a"]
    with pytest.raises(OperatorError, match=r"newest runs: 20260101T\S+, 20260102T"):
        find_run(tmp_path, "nope")
    with pytest.raises(CannotTell):
        (tmp_path / "l").symlink_to("l")
        list_folder(tmp_path / "l")
