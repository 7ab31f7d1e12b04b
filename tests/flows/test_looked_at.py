"""A real run looked at, and ended, from another shell than the one that trains it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprise.runs.ray.processes import marked
from tests.flows.command import ROOT, Command, stop_everything

pytestmark = [pytest.mark.rehearsal, pytest.mark.full]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    stop_everything(tmp_path)


def ask(runs: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "reprise", *words, "--json"],
        env={**os.environ, "RUNS_DIR": str(runs)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert "Traceback" not in done.stderr, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, value


def test_status_while_it_trains_and_stop_from_another_shell(runs: Path) -> None:
    settings = ("trainer.save_freq=2", "trainer.test_freq=-1", "trainer.total_training_steps=40")
    command = Command(runs, ["--attempts", "3", "--", "rehearsal", *settings]).start()
    try:
        look_and_stop(command, runs)
    finally:
        assert command.process is not None
        command.process.kill()


def look_and_stop(command: Command, runs: Path) -> None:
    folder = command.at_step(3)
    code, seen = ask(runs, "status", folder.name)
    assert code == 0, seen
    assert (seen["state"], seen["job"], seen["attempt"], seen["total"]) == (
        "running",
        "RUNNING",
        1,
        40,
    )
    assert seen["step"] >= 3 and seen["step_seconds"] > 0 and seen["left"] > 0
    assert 2 <= seen["checkpoint"]["step"] <= seen["step"] + 1
    assert seen["nodes"]["alive"] == 1
    assert 0 < seen["values"]["reward"] < 1 and seen["values"]["probs diff"] < 0.015
    # The first validation stands before step 1.
    assert seen["validation"]["step"] == 0
    code, log = ask(runs, "logs", folder.name)
    assert code == 0 and any("step:3 - " in line for line in log["lines"])

    code, stopped = ask(runs, "stop", folder.name)
    assert (code, stopped["state"]) == (0, "stopped"), stopped
    command.end()
    facts = folder.read()
    assert [attempt.outcome for attempt in facts.attempts] == ["stopped"]
    assert marked(folder.name) == []
    code, checked = ask(runs, "checkpoint", "check", facts.checkpoints, "--world-size", "1")
    assert code == 0 and checked["newest_complete"] >= 2
