"""A run that is cut off, politely or not, leaves nothing that the next one would trip over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.core.project import find_project
from reprise.flows.rehearsal import MODEL, Rehearsal, RehearsalOptions
from reprise.runs.ray.processes import alive, marked, stop_all
from reprise.runs.state.folder import RunFolder, readable_runs, recent_runs
from tests.states import change

pytestmark = [pytest.mark.rehearsal, pytest.mark.full]

COMMAND = [sys.executable, "-m", "reprise", "reproduce", "--steps", "1"]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("RUNS_DIR", str(tmp_path))
    yield tmp_path
    for run, state in readable_runs(tmp_path, MODEL):
        owner = state.watcher
        if owner is not None and alive(owner.pid, owner.created):
            os.kill(owner.pid, signal.SIGKILL)
        stop_all(run.name)


def started(runs: Path) -> tuple[subprocess.Popen[str], RunFolder]:
    """The command, once its job is submitted."""
    process = subprocess.Popen(
        COMMAND, env={**os.environ, "RUNS_DIR": str(runs)}, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        found = recent_runs(runs, MODEL)
        if found and any(event["event"] == "submitted" for event in found[0].events()):
            return process, found[0]
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.2)
    raise AssertionError("the job was not submitted in time")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_polite_end_stops_everything(runs: Path, number: signal.Signals) -> None:
    process, run = started(runs)
    process.send_signal(number)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert marked(run.name) == []
    facts = run.read()
    assert (facts.status, facts.watcher) == ("interrupted", None)
    assert not Path(facts.ray.temp_dir).exists()


def test_what_a_killed_command_left_is_stopped_by_the_next(runs: Path) -> None:
    process, run = started(runs)
    process.kill()
    process.wait()
    assert marked(run.name), "Ray lives on after the kill: that is what the next command must see"
    Rehearsal(find_project(), RehearsalOptions(quiet=True)).remove_leftovers()
    assert marked(run.name) == []
    assert run.read().status == "interrupted"
    assert not Path(run.read().ray.temp_dir).exists()


def test_what_is_another_machines_is_left_alone(runs: Path) -> None:
    """Run folders on a shared home: of a run elsewhere nothing can be told from here."""
    process = {"pid": 1, "created": 1.0, "host": "desk-7"}
    ray = {"temp_dir": "/nonexistent", "host": "desk-7"}
    facts = {"command": "reproduce", "watcher": process, "ray": ray}
    running = RunFolder.create(runs, MODEL, facts)
    change(running, state="running")
    damaged = RunFolder.create(runs, MODEL, {})
    damaged.state_file.write_text("{")
    owner = {"pid": 1, "created": 1.0}
    gone = RunFolder.create(runs, MODEL, {"command": "reproduce", "watcher": owner})
    Rehearsal(find_project(), RehearsalOptions(quiet=True)).remove_leftovers()
    assert running.read().status == "running"
    assert (gone.read().status, gone.read().watcher) == ("interrupted", None)
