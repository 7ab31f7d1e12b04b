"""Processes of a test: what they say, line by line, and their end with the test's."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, AnyStr

import psutil


@contextlib.contextmanager
def started(command: Sequence[object], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that is heard on both its outputs; it is killed when the block ends."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    process = subprocess.Popen([str(word) for word in command], **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def unique(name: str) -> str:
    """A name that no other test run on this machine has: processes are ended by such names."""
    return f"{name}-{secrets.token_hex(4)}"


def command_lines(processes: Iterable[psutil.Process]) -> str:
    """Their command lines; of one that has ended meanwhile, nothing."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found.append(" ".join(process.cmdline()))
    return "\n".join(found)


def until_said(stream: IO[AnyStr] | None, word: AnyStr, times: int = 1) -> list[AnyStr]:
    """Read lines until `word` stood in `times` of them; all lines that were read.

    A `readline` in a loop of its own never ends once the process is gone: it gives empty lines.
    """
    assert stream is not None
    lines: list[AnyStr] = []
    for line in stream:
        lines.append(line)
        times -= word in line
        if times == 0:
            return lines
    raise AssertionError(f"the process ended without {word!r}; it said {lines!r}")
