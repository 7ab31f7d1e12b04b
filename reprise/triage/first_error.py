"""The first error of a job's log: where a failure began, not where it was last felt."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["FirstError", "first_error"]

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
# "(vLLMHttpServer pid=1) (Worker pid=2) ERROR 11-29 13:26:01 [file.py:10] text"
_PROCESS = re.compile(r"^(?:\([^()]*?pid=\d+[^()]*\)\s?)+")
_LOGGER = re.compile(r"^(?:ERROR|CRITICAL)\s+\d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?")
_EXCEPTION = re.compile(
    r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Timeout|Interrupt|Exit)\b:? ?.*$"
)
_TRACEBACK = "Traceback (most recent call last):"
# Ray re-raises a worker's exception in its caller under these names: an echo, never the origin.
_ECHO = re.compile(r"^(?:ray\.exceptions\.)?(?:RayTaskError|RayActorError|ActorDiedError)")


@dataclass(frozen=True, slots=True)
class FirstError:
    """`line` counts from 1; `process` is the prefix that Ray or the engine printed, or empty."""

    line: int
    process: str
    text: str


def first_error(lines: Iterable[str]) -> FirstError | None:
    """The last line of the first traceback in `lines`, or None when there is no traceback.

    A traceback that only echoes another process's exception is used when nothing better is found.
    """
    open_in: set[str] = set()
    echo: FirstError | None = None
    for number, raw in enumerate(lines, start=1):
        text = _ANSI.sub("", raw).rstrip("\r\n")
        match = _PROCESS.match(text)
        process = match.group(0).strip() if match else ""
        body = _LOGGER.sub("", text[match.end() :] if match else text)
        if body.lstrip().startswith(_TRACEBACK):
            open_in.add(process)
            continue
        if process in open_in and _EXCEPTION.match(body):
            found = FirstError(number, process, body.strip())
            if not _ECHO.match(found.text):
                return found
            # The remote traceback follows, and ends with the exception itself.
            echo = echo or found
    return echo
