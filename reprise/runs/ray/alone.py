"""One private Ray with a rollout engine at a time on a machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from reprise.core.files import hold_lock
from reprise.runs.ray.processes import MARK

__all__ = ["LOCK", "alone_on_this_machine"]

LOCK = Path("/tmp/reprise-alone.lock")  # noqa: S108
"""In the folder of the socket of verl that it guards; empty, never removed."""


@contextlib.contextmanager
def alone_on_this_machine(say: Callable[[str], None], lock: Path = LOCK) -> Iterator[int]:
    """Wait until no other run holds the machine, hold it, and release it at the end.

    The end of this process releases it as well.

    Yields a file handle: a process that inherits it holds the machine until its own end, so that
    a Ray which outlives its command still keeps others away.

    verl sends weights through a socket that is named /tmp/rl-colocate-zmq-<Ray's job number>-…;
    every private Ray counts from 1, so two runs at the same time would hang or get each other's
    weights (seen with 220e903, the name is the same in 0.9.1). `say` reports a wait.
    """
    said = False

    def waiting() -> None:
        nonlocal said
        if not said:
            said = True
            say(
                f"another run trains on this machine{_holder(lock)}: waiting until it ends "
                "(both use one socket)"
            )

    handle = _open(lock)
    try:
        hold_lock(handle, waiting)
        yield handle
    finally:
        os.close(handle)


def _open(lock: Path) -> int:
    # Another user's file can be locked without being written to, but not opened to be created.
    with contextlib.suppress(FileNotFoundError):
        return os.open(lock, os.O_RDONLY)
    handle = os.open(lock, os.O_RDONLY | os.O_CREAT, 0o644)
    with contextlib.suppress(OSError):
        os.fchmod(handle, 0o644)  # whatever the umask: other users must be able to open it
    return handle


def _holder(lock: Path) -> str:
    """Which run has the lock open, as far as this user can see; empty when unknown."""
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            folder = Path(f"/proc/{process.pid}/fd")
            if process.pid == os.getpid() or not any(
                str(handle.readlink()) == str(lock) for handle in folder.iterdir()
            ):
                continue
            run = process.environ().get(MARK)
            return f" ({run}, to end it: reprise stop {run})" if run else f" ({process.pid})"
    return ""
