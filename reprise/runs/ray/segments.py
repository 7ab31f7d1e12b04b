"""Shared memory that a run's processes make: recorded while they live, removed after them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from pathlib import Path

import psutil

from reprise.core.files import write_text
from reprise.runs.ray.processes import marked

__all__ = ["Segments", "remove_segments"]

_SHM = Path("/dev/shm")  # noqa: S108 (where Linux keeps POSIX shared memory; nothing is created)
_LOOK_SECONDS = 2.0


class Segments:
    """Writes the names of the segments that run `run_id` maps to the file `record`.

    vLLM's engine makes message queues there and is killed by Ray before it can remove them:
    about 400 MB of address space a run. After its end their owner is unknown.
    """

    def __init__(self, run_id: str, record: Path) -> None:
        self._run_id = run_id
        self._record = record
        self._others = _names()
        self._ours: set[str] = set()
        self._asked: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="segments", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look a last time, and end the thread."""
        self._stop.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        # Reading every process's memory map costs; a new name is the only reason for it.
        new = _names() - self._others - self._ours
        if not new:
            return
        mapped = new & _mapped(marked(self._run_id))
        self._ours |= mapped
        # What is not ours at the second look either is another's, and not asked about again.
        self._others |= (new - mapped) & self._asked
        self._asked |= new
        if mapped:
            with contextlib.suppress(OSError):
                write_text(self._record, "\n".join(sorted(self._ours)) + "\n")


def remove_segments(record: Path) -> list[str]:
    """Remove the recorded segments that no process maps any more; returns their names.

    To be called when the run's processes are gone; without a record nothing is done.
    """
    try:
        names = set(record.read_text(encoding="utf-8").split())
    except OSError:
        return []
    unused = (names & _names()) - _mapped(psutil.process_iter())
    for name in unused:
        with contextlib.suppress(OSError):
            (_SHM / name).unlink()
    return sorted(unused)


def _names() -> set[str]:
    """The files in /dev/shm now."""
    try:
        return {path.name for path in _SHM.iterdir() if path.is_file()}
    except OSError:
        return set()


def _mapped(processes: Iterable[psutil.Process]) -> set[str]:
    """Names below /dev/shm in the memory maps of `processes`, as far as they may be read."""
    found: set[str] = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for line in (
                Path(f"/proc/{process.pid}/maps")
                .read_text(encoding="utf-8", errors="replace")
                .splitlines()
            ):
                # The sixth field is the path; a removed file has " (deleted)" after it.
                path = line.split(maxsplit=5)[5:]
                if path and path[0].startswith(f"{_SHM}/"):
                    found.add(path[0].removeprefix(f"{_SHM}/"))
    return found
