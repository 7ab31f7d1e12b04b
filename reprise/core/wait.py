"""Wait until something holds, for a limited time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["wait_until"]

T = TypeVar("T")


def wait_until(
    question: Callable[[], T],
    seconds: float,
    *,
    every: float = 0.2,
    slower: float = 1.0,
    most: float = 5.0,
) -> T:
    """Ask `question` until its answer is true, or `seconds` have passed; the last answer.

    The first question comes at once, the next after `every` seconds; each pause is `slower` times
    the one before and at most `most` seconds. The question is asked once more at the end of the
    time, so that an answer that came during the last pause counts. An exception passes through.
    """
    end = time.monotonic() + seconds
    pause = every
    while True:
        answer = question()
        left = end - time.monotonic()
        if answer or left <= 0:
            return answer
        time.sleep(min(pause, left))
        pause = min(pause * slower, most)
