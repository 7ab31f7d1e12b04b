"""One run at a time on a machine: waiting for another, and no waiting for a dead one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from reprise.run.alone import alone_on_this_machine
from reprise.run.processes import MARK

HOLD = """
import sys, time
from pathlib import Path
from reprise.run.alone import alone_on_this_machine
with alone_on_this_machine(print, Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(lock: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(lock), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_run_waits_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    first = holder(tmp_path / "lock", 1.0)
    with alone_on_this_machine(said.append, tmp_path / "lock"):
        assert first.wait(5) == 0
    assert len(said) == 1 and "waiting for its end" in said[0]


def test_a_killed_run_holds_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    first = holder(tmp_path / "lock", 60.0)
    first.kill()
    first.wait()
    started = time.monotonic()
    with alone_on_this_machine(said.append, tmp_path / "lock"):
        assert time.monotonic() - started < 30
    assert said == []


def test_what_a_run_starts_does_not_hold_it_beyond_its_end(tmp_path: Path) -> None:
    with alone_on_this_machine(print, tmp_path / "lock"):
        child = subprocess.Popen(["sleep", "30"])
    said: list[str] = []
    with alone_on_this_machine(said.append, tmp_path / "lock"):
        child.kill()
        child.wait()
    assert said == []


def test_the_next_run_needs_no_new_file(tmp_path: Path) -> None:
    for _ in range(2):
        with alone_on_this_machine(print, tmp_path / "lock"):
            assert (tmp_path / "lock").stat().st_size == 0


def test_a_ray_that_outlives_its_command_keeps_others_away(tmp_path: Path) -> None:
    """The launcher inherits the handle; its run is named to who waits."""
    lock = tmp_path / "lock"
    with alone_on_this_machine(print, lock) as handle:
        ray = subprocess.Popen(
            ["sleep", "2"], pass_fds=[handle], env={**os.environ, MARK: "20260101T000000Z-abcdef"}
        )
    said: list[str] = []
    with alone_on_this_machine(said.append, lock):
        assert ray.wait(5) == 0
    assert len(said) == 1
    assert "reprise stop 20260101T000000Z-abcdef" in said[0]
