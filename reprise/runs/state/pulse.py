"""Which command supervises a run: a lock that its kernel holds, its name in run.json, a pulse.

The lock decides wherever the storage has locks: it ends with its process, whatever becomes of
clocks, process ids and host names. Where it has none, a supervisor of the same kernel and namespace
of pids is looked up by its start in ticks since the boot; any other (another machine, another
container) touches a file as long as it lives, and the storage's own clock says how long ago.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from reprise.core.errors import OperatorError
from reprise.core.files import try_lock
from reprise.core.wait import wait_until
from reprise.runs.ray.processes import alive
from reprise.runs.state.folder import RunFolder, StorageFull
from reprise.runs.state.state import Process, RunState

__all__ = ["QUIET_SECONDS", "here", "pulse_age", "supervised", "supervising"]

QUIET_SECONDS = 180.0
"""A supervisor out of this kernel's reach without a pulse for this long is gone."""

_BEAT_SECONDS = 20.0
_PULSE = ".pulse"
_LOCK = ".supervisor"
# A command that only asks holds the lock for an instant.
_TURN_SECONDS = 2.0
# /proc/PID/stat, counted from the field after the name: its state, and its start (proc(5)).
_STATE, _START = 0, 19


def here() -> Process:
    """This process, as run.json names the supervisor of a run."""
    process = psutil.Process()
    return Process(
        pid=process.pid,
        created=process.create_time(),
        host=socket.gethostname(),
        boot=_boot(),
        ticks=_ticks(process.pid),
        namespace=_namespace(),
    )


def supervised(folder: RunFolder, state: RunState, exact: bool = False) -> bool:
    """Whether a command supervises the run now.

    `exact` asks the storage for its time, which writes to it; without, this machine's clock counts.
    One out of this kernel's reach that never had a pulse is believed.
    """
    if _held(folder):
        return True
    watcher = state.watcher
    if watcher is None:
        return False
    if watcher.boot is None and watcher.host in (None, socket.gethostname()):
        return alive(watcher.pid, watcher.created)  # recorded before there was a boot id
    if watcher.boot is not None and (watcher.boot, watcher.namespace) == (_boot(), _namespace()):
        return watcher.ticks is not None and _ticks(watcher.pid) == watcher.ticks
    age = pulse_age(folder, exact)
    return age is None or age <= QUIET_SECONDS


def _boot() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def _namespace() -> int | None:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None


def _ticks(pid: int) -> int | None:
    """When `pid` of this namespace started; None when it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[_STATE] == "Z" else int(fields[_START])


def _held(folder: RunFolder) -> bool:
    """Whether the lock of the run's supervisor is held, by whichever process or container."""
    try:
        with (folder.path / _LOCK).open("rb") as file:
            return try_lock(file.fileno(), shared=True) is False
    except OSError:
        return False  # no such file yet


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
    """Be the run's supervisor within the block, with its lock and a pulse.

    Raises OperatorError when another command became it in the same moment.
    """
    with (folder.path / _LOCK).open("ab") as file:
        _take(folder, file.fileno())
        with _beating(folder):
            yield


def _take(folder: RunFolder, handle: int) -> None:
    # Where the storage has no locks, the name and the pulse have to do.
    if not wait_until(lambda: try_lock(handle) is not False, _TURN_SECONDS, every=0.05):
        raise OperatorError("train-resume.supervised-now", folder.name, run=folder.name)


@contextlib.contextmanager
def _beating(folder: RunFolder) -> Iterator[None]:
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
        # Another command may have taken the run over meanwhile. Without space the name stays: the
        # lock and the start of its process say that it is gone.
        with contextlib.suppress(StorageFull), folder.edit() as state:
            if state.watcher == watcher:
                state.watcher = None


def _beat_on(folder: RunFolder, over: threading.Event) -> None:
    while not over.wait(_BEAT_SECONDS):
        _beat(folder)


def _beat(folder: RunFolder) -> None:
    # The watch reports full or missing storage.
    with contextlib.suppress(OSError):
        (folder.path / _PULSE).touch()
