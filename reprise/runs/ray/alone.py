"""One private Ray with a rollout engine at a time on a machine."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from reprise.core.errors import OperatorError
from reprise.core.files import hold_lock
from reprise.runs.ray.processes import MARK

__all__ = ["LOCK", "alone_on_this_machine"]

LOCK = Path("/tmp/reprise-alone.lock")  # noqa: S108
"""In the folder of the socket of verl that it guards; empty, never removed."""

_HEAR_SECONDS = 1.0


@contextlib.contextmanager
def alone_on_this_machine(
    say: Callable[[str], None],
    lock: Path = LOCK,
    heard: Callable[[], None] = lambda: None,
    wait: bool = True,
    progress: Callable[[str], str] = lambda _: "",
) -> Iterator[int]:
    """Wait until no other run holds the machine, hold it, and release it at the end.

    The end of this process releases it as well.

    Yields a file handle: a process that inherits it holds the machine until its own end, so that
    a Ray which outlives its command still keeps others away.

    verl sends weights through a socket that is named /tmp/rl-colocate-zmq-<Ray's job number>-…;
    every private Ray counts from 1, so two runs at the same time would hang or get each other's
    weights (seen with 220e903, the name is the same in 0.9.1). `say` reports a wait; `heard` is
    called once a second of it, and ends it by what it raises; `progress` says how far the run with
    an id is. Without `wait`, raises OperatorError where another run holds the machine.
    """
    said, last = False, 0.0

    def waiting() -> None:
        nonlocal said, last
        if not wait:
            raise OperatorError("run-alone.busy", "this machine", holder=_holder(lock, progress))
        if not said:
            said = True
            say(
                f"another run trains on this machine{_holder(lock, progress)}: "
                "waiting until it ends (both use one socket)"
            )
        if time.monotonic() - last >= _HEAR_SECONDS:
            last = time.monotonic()
            heard()

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


def _holder(lock: Path, progress: Callable[[str], str]) -> str:
    """Which run has the lock open, as far as this user can see; empty when unknown."""
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            folder = Path(f"/proc/{process.pid}/fd")
            if process.pid == os.getpid() or not any(
                str(handle.readlink()) == str(lock) for handle in folder.iterdir()
            ):
                continue
            run = process.environ().get(MARK)
            if not run:
                return f" (process {process.pid})"
            return f" ({run}{progress(run)}, to end it: reprise stop {run})"
    return ""
