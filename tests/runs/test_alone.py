"""One run at a time on a machine: waiting for another, and no waiting for a dead one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprise.core.errors import OperatorError
from reprise.runs.ray.alone import alone_on_this_machine
from reprise.runs.ray.processes import MARK
from tests.saying import started, until_said

# Holds the machine until its standard input is closed.
HOLD = """
import sys
from pathlib import Path
from reprise.runs.ray.alone import alone_on_this_machine
with alone_on_this_machine(print, Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def holder(lock: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, lock]
    with started(command, stdin=subprocess.PIPE, text=True) as process:
        until_said(process.stdout, "held")
        yield process


def letting_go(process: subprocess.Popen[str], said: list[str]) -> Callable[[str], None]:
    """What is told of a wait is kept, and ends the process that is waited for."""

    def say(text: str) -> None:
        said.append(text)
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None  # so that its end can be waited for

    return say


def test_a_second_run_waits_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    lock = tmp_path / "lock"
    with holder(lock) as first, alone_on_this_machine(letting_go(first, said), lock):
        assert first.wait(60) == 0
    assert len(said) == 1 and "waiting until it ends" in said[0]


def test_a_killed_run_holds_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    with holder(tmp_path / "lock") as first:
        first.kill()
        first.wait(60)
        with alone_on_this_machine(said.append, tmp_path / "lock"):
            pass
    assert said == []


def test_other_users_can_open_the_lock_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with alone_on_this_machine(print, tmp_path / "lock"):
            assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


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
    command, marked = ["cat"], os.environ | {MARK: "20260101T000000Z-abcdef"}
    with contextlib.ExitStack() as stack:
        with alone_on_this_machine(print, lock) as handle:
            options = {"stdin": subprocess.PIPE, "pass_fds": [handle], "env": marked}
            ray = stack.enter_context(started(command, **options, text=True))
        said: list[str] = []
        with alone_on_this_machine(letting_go(ray, said), lock):
            assert ray.wait(60) == 0
    assert len(said) == 1
    assert "reprise stop 20260101T000000Z-abcdef" in said[0]


def test_a_wait_hears_a_stop_within_two_seconds(tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def heard() -> None:
        raise Stopped

    lock = tmp_path / "lock"
    begun = time.monotonic()
    with holder(lock):
        begun = time.monotonic()
        with pytest.raises(Stopped), alone_on_this_machine(lambda _: None, lock, heard):
            raise AssertionError
    assert time.monotonic() - begun < 2.0


def test_without_waiting_the_other_run_and_its_step_are_named(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    options = {"stdin": subprocess.PIPE, "env": os.environ | {MARK: "20260101T000000Z-abcdef"}}
    with started([sys.executable, "-c", HOLD, lock], **options, text=True) as process:
        until_said(process.stdout, "held")
        waiting = alone_on_this_machine(
            print, lock, wait=False, progress=lambda run: f", step 3 of 40 of {run[:4]}"
        )
        with pytest.raises(OperatorError, match="abcdef, step 3 of 40 of 2026, to end it"), waiting:
            raise AssertionError
