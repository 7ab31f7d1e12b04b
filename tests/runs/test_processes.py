import os
import subprocess
import sys

import psutil

from reprise.runs.ray.processes import MARK, alive, marked, stop_all
from tests.saying import unique

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
# Ignores the polite signal, and has a child of its own that outlives it.
STUBBORN = (
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    f"subprocess.Popen({SLEEPER!r}, start_new_session=True)\n"
    "print('up', flush=True)\n"
    "time.sleep(60)\n"
)


def test_only_processes_that_carry_the_mark_are_stopped() -> None:
    run = unique("run")
    mine = subprocess.Popen(
        [sys.executable, "-c", STUBBORN],
        env={**os.environ, MARK: run},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    other = subprocess.Popen(SLEEPER, env={**os.environ, MARK: f"{run}b"})
    try:
        assert mine.stdout is not None and mine.stdout.readline() == b"up\n"
        assert len(marked(run)) == 2
        assert stop_all(run) == []
        assert not psutil.pid_exists(mine.pid)
        assert marked(run) == []
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
        mine.kill()


def test_a_recycled_pid_is_not_the_recorded_process() -> None:
    me = psutil.Process()
    assert alive(me.pid, me.create_time())
    assert not alive(me.pid, me.create_time() - 100)
    assert not alive(2**22 + 1, 0)


# Ray's workers set a title, which overwrites the environment that the kernel shows.
TITLED = (
    "import os, subprocess, sys, time\n"
    f"subprocess.Popen({SLEEPER!r}, env={{'PATH': os.environ['PATH']}})\n"
    "print('up', flush=True)\n"
    "time.sleep(60)\n"
)


def test_descendants_without_the_mark_are_found_and_stopped() -> None:
    run = unique("titled")
    parent = subprocess.Popen(
        [sys.executable, "-c", TITLED],
        env={**os.environ, MARK: run},
        stdout=subprocess.PIPE,
    )
    try:
        assert parent.stdout is not None and parent.stdout.readline() == b"up\n"
        found = marked(run)
        assert len(found) == 2
        assert stop_all(run, first=[psutil.Process(parent.pid)]) == []
        # An orphan may wait for its new parent to take note of its end.
        assert not any(alive(process.pid, process.create_time()) for process in found)
    finally:
        parent.kill()
