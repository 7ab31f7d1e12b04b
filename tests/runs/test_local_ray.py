"""A private Ray's launcher that never gets ready: whatever ends the wait, nothing of it stays."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from reprise.core.errors import OperatorError
from reprise.runs.ray.local_ray import new_temp_dir, start_local_ray
from reprise.runs.ray.processes import alive, marked
from tests.saying import started, until_said

START = """
import sys
from pathlib import Path
from reprise.cli.interrupts import hear_interrupts
from reprise.runs.ray.local_ray import new_temp_dir, start_local_ray
hear_interrupts()
folder = Path(sys.argv[1])
temp_dir = new_temp_dir()
print(temp_dir, flush=True)
start_local_ray(folder / "python", sys.argv[2], 1, temp_dir, folder / "ray.log")
"""


def launcher(folder: Path, text: str) -> None:
    path = folder / "ray"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def until(condition: Callable[[], bool], pause: float) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(pause)


def test_a_second_interrupt_leaves_nothing(tmp_path: Path) -> None:
    run = f"second-{tmp_path.name}-{time.monotonic_ns()}"
    start = "for n in 1 2 3 4 5 6; do sleep 300 & done"
    launcher(tmp_path, f"{start}\necho $$ >pid.part\nmv pid.part pid\nwait")
    with started([sys.executable, "-c", START, tmp_path, run], text=True) as process:
        temp_dir = Path(until_said(process.stdout, "/")[0].strip())
        until((temp_dir / "pid").exists, 0.02)
        first = psutil.Process(int((temp_dir / "pid").read_text(encoding="utf-8")))
        process.send_signal(signal.SIGINT)
        # The launcher is ended first: what it started still runs when the second one comes.
        until(lambda: not alive(first.pid, first.create_time()), 0.001)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode != 0
    assert marked(run) == []
    assert not temp_dir.exists()


def test_a_launcher_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    run = f"ends-{tmp_path.name}-{time.monotonic_ns()}"
    launcher(tmp_path, "sleep 300 & echo no room; exit 3")
    temp_dir = new_temp_dir()
    with pytest.raises(OperatorError, match=r"exit code 3\): no room"):
        start_local_ray(tmp_path / "python", run, 1, temp_dir, tmp_path / "ray.log")
    assert marked(run) == []
    assert not temp_dir.exists()


def test_its_ports_are_none_that_an_outgoing_connection_may_take_first(tmp_path: Path) -> None:
    # Seen: Ray's agent found its port taken and lived on without it; no job could be submitted.
    run = f"ports-{tmp_path.name}-{time.monotonic_ns()}"
    launcher(tmp_path, 'echo "$@"; exit 3')
    with pytest.raises(OperatorError):
        start_local_ray(tmp_path / "python", run, 1, new_temp_dir(), tmp_path / "ray.log")
    ports = re.findall(r"port (\d+)", (tmp_path / "ray.log").read_text(encoding="utf-8"))
    first, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8").split()
    assert len(set(ports)) == 4
    assert all(int(port) < int(first) for port in ports)
