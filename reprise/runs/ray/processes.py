"""Processes that a run started: found by the run's own mark, stopped one by one."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from reprise.core.wait import wait_until

__all__ = ["MARK", "alive", "marked", "stop_all"]

MARK = "REPRISE_RUN_ID"
"""Environment variable that every process of a run inherits."""


def marked(run_id: str) -> list[psutil.Process]:
    """This user's processes that carry `run_id`, and all that descend from them.

    Descendants count because Ray's workers write their title over the memory that holds their
    environment.
    """
    wanted = f"{MARK}={run_id}".encode()
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        # A process can end, or belong to another user, between the listing and the reading.
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found[process.pid] = process
    for process in list(found.values()):
        with contextlib.suppress(psutil.Error):
            found |= {child.pid: child for child in process.children(recursive=True)}
    found.pop(os.getpid(), None)
    return list(found.values())


def alive(pid: int, created: float) -> bool:
    """Whether the process `pid` that started at `created` (epoch seconds) still runs.

    The start time distinguishes a recycled pid from the recorded process.
    """
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - created) < 1 and (
            process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.Error:
        return False


def stop_all(run_id: str, grace: float = 10.0, first: Sequence[psutil.Process] = ()) -> list[int]:
    """Kill every process marked with `run_id`; `first` (Ray's own launcher) before all others.

    SIGKILL at once: a run's private Ray keeps nothing that outlives it, its job has ended or was
    stopped through the Jobs API before, and SIGTERM takes four seconds.
    Returns the pids that still run after `grace` seconds; an empty list means that all have ended.
    """
    # Taken before any parent is gone: an orphan whose title hides its mark cannot be found later.
    known = marked(run_id)
    _signal(first, signal.SIGKILL)
    _await_end(first, grace)
    deadline = time.monotonic() + grace
    # Ray restarts nothing once its launcher is gone, but workers may still be forking.
    while (remaining := _still(known, run_id)) and time.monotonic() < deadline:
        _signal(remaining, signal.SIGKILL)
        _await_end(remaining, 2.0)
    for process in [*first, *known]:
        # Reaps our own children; others are reaped by their parents.
        with contextlib.suppress(psutil.Error):
            process.wait(0)
    return [process.pid for process in remaining]


def _await_end(processes: Sequence[psutil.Process], seconds: float) -> None:
    """Wait until none of them runs, at most `seconds`.

    psutil's own wait also waits until the parent has reaped the process.
    """
    wait_until(lambda: not any(_runs(process) for process in processes), seconds, every=0.02)


def _still(known: Iterable[psutil.Process], run_id: str) -> list[psutil.Process]:
    """The running processes of `known` (psutil detects a recycled pid), and new ones."""
    left = {process.pid: process for process in known if _runs(process)}
    return list((left | {process.pid: process for process in marked(run_id)}).values())


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
