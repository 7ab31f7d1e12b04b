"""Several gits at a time, in threads that an interrupt does not reach by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from reprise.lock.git import stop_running

__all__ = ["in_parallel"]

Result = TypeVar("Result")


def in_parallel(one: Callable[[str], Result], names: Sequence[str], width: int) -> list[Result]:
    """Call `one` for every name, `width` at a time; the results in the order of the names.

    An interrupt ends the gits at work, begins no further call, and goes on once every thread has
    removed what it had begun.
    """
    with ThreadPoolExecutor(width) as pool:
        futures = [pool.submit(one, name) for name in names]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            # Again and again: a thread may have been about to start its git.
            while wait(futures, timeout=0.1).not_done:
                stop_running()
            raise
