"""Which command supervises a run: named in run.json, and proved by a pulse on the run's storage.

A command on another machine cannot be looked up by its process id. It touches a file as long as it
lives; the storage's own clock says how long ago, as the clocks of two machines may differ.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator

import psutil

from reprise.runs.ray.processes import alive
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import Process, RunState

__all__ = ["QUIET_SECONDS", "here", "pulse_age", "supervised", "supervising"]

QUIET_SECONDS = 180.0
"""A supervisor on another machine without a pulse for this long is gone."""

_BEAT_SECONDS = 20.0
_PULSE = ".pulse"


def here() -> Process:
    """This process, as run.json names the supervisor of a run."""
    process = psutil.Process()
    return Process(pid=process.pid, created=process.create_time(), host=socket.gethostname())


def supervised(folder: RunFolder, state: RunState, exact: bool = False) -> bool:
    """Whether a command supervises the run now.

    `exact` asks the storage for its time, which writes to it; without, this machine's clock counts.
    One on another host that never had a pulse is believed.
    """
    watcher = state.watcher
    if watcher is None:
        return False
    if watcher.host in (None, socket.gethostname()):
        return alive(watcher.pid, watcher.created)
    age = pulse_age(folder, exact)
    return age is None or age <= QUIET_SECONDS


def pulse_age(folder: RunFolder, exact: bool = False) -> float | None:
    """Seconds since the last pulse; None when there never was one. `exact` as for `supervised`."""
    try:
        beaten = (folder.path / _PULSE).stat().st_mtime
    except OSError:
        return None
    now = time.time()
    if exact:
        with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=folder.path) as file:
            now = os.fstat(file.fileno()).st_mtime
    return max(now - beaten, 0.0)


@contextlib.contextmanager
def supervising(folder: RunFolder) -> Iterator[None]:
    """Be the run's supervisor within the block, with a pulse."""
    watcher = here()
    _beat(folder)
    with folder.edit() as state:
        state.watcher = watcher
    over = threading.Event()
    thread = threading.Thread(target=_beat_on, args=(folder, over), name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        # Another command may have taken the run over meanwhile.
        with folder.edit() as state:
            if state.watcher == watcher:
                state.watcher = None


def _beat_on(folder: RunFolder, over: threading.Event) -> None:
    while not over.wait(_BEAT_SECONDS):
        _beat(folder)


def _beat(folder: RunFolder) -> None:
    # The watch reports full or missing storage.
    with contextlib.suppress(OSError):
        (folder.path / _PULSE).touch()
