"""Several calls at a time, in threads that an interrupt does not reach by itself; and what no
interrupt cuts."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

__all__ = ["in_parallel", "undisturbed"]

Item = TypeVar("Item")
Result = TypeVar("Result")

# Seconds between two looks. Without them an interrupt that comes just before the main thread falls
# asleep is only heard when it wakes: Python runs signal handlers between two steps of that thread.
_LOOK = 0.1


def in_parallel(
    one: Callable[[Item], Result],
    items: Sequence[Item],
    width: int,
    stop: Callable[[], None] = lambda: None,
) -> list[Result]:
    """Call `one` for every item, `width` at a time; the results in the order of the items.

    An interrupt, or the first exception of a call, begins no further call and is raised once every
    thread has removed what it had begun. `stop` ends what the calls wait for.
    """
    pool = ThreadPoolExecutor(width)
    try:
        futures = [pool.submit(one, item) for item in items]
        while (states := wait(futures, _LOOK, FIRST_EXCEPTION)).not_done:
            for future in states.done:
                future.result()
        return [future.result() for future in futures]
    except BaseException:
        _end(pool, stop)
        raise
    finally:
        pool.shutdown()


def _end(pool: ThreadPoolExecutor, stop: Callable[[], None]) -> None:
    """Wait for the threads, and call `stop` until then, again and again.

    One of them may have been about to start just what `stop` ends.
    """
    pool.shutdown(wait=False, cancel_futures=True)
    ended = threading.Event()

    def stopping() -> None:
        while not ended.is_set():
            stop()
            ended.wait(_LOOK)

    threading.Thread(target=stopping, name="stopping", daemon=True).start()
    try:
        pool.shutdown()
    finally:
        ended.set()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let the block end first: an interrupt that comes meanwhile is raised after it.

    For the stopping of what was started, which an impatient second Ctrl-C would leave half done.
    The block must have limits of its own. In another thread than the main one nothing is changed.
    """
    came: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(signal.getsignal(number)):
                before[number] = signal.signal(number, lambda one, _: came.append(one))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt
