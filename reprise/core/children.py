"""Commands that are ended with this one, and whatever they started with them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from reprise.core.parallel import undisturbed

__all__ = ["end_session", "in_session", "run_in_session", "signal_session"]

_GRACE_SECONDS = 20.0


@contextlib.contextmanager
def in_session(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A command in a session of its own, without a terminal to ask; ended when the block fails.

    An interrupt key would reach it as well, but no other signal does, and what it has started in
    the background ignores that key.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options)
    try:
        yield process
    except BaseException:
        end_session(process)
        raise
    finally:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    process.wait()


def run_in_session(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run(..., text=True)`; see `in_session`."""
    with in_session(command, encoding="utf-8", errors="replace", **options) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def end_session(process: subprocess.Popen[Any], seconds: float = _GRACE_SECONDS) -> None:
    """Ask all of the session that `process` leads to end, then end it; reap the process."""
    with undisturbed():
        signal_session(process, signal.SIGTERM)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            signal_session(process, signal.SIGKILL)
            process.wait()


def signal_session(process: subprocess.Popen[Any], number: signal.Signals) -> None:
    """Send `number` to all of the session that `process` leads, unless it is reaped already."""
    # Once it is reaped its number may be another's.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
