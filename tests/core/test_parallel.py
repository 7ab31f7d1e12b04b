"""Calls at a time: order, the first failure, and interrupts that no sleep hides."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from reprise.core.parallel import in_parallel, undisturbed


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler, also where the tests were started with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_results_come_in_the_order_of_the_items() -> None:
    def slow_first(item: int) -> int:
        time.sleep(0.2 if item == 0 else 0)
        return item * item

    assert in_parallel(slow_first, range(5), 2) == [0, 1, 4, 9, 16]
    assert in_parallel(slow_first, [], 2) == []


def test_the_first_failure_stops_the_others_and_begins_no_further_call() -> None:
    stopped = threading.Event()
    begun = []

    def one(item: int) -> None:
        begun.append(item)
        if item == 1:
            raise ValueError("the second")
        assert stopped.wait(60)

    with pytest.raises(ValueError, match="the second"):
        in_parallel(one, range(6), 2, stopped.set)
    assert set(begun) <= {0, 1, 2}


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_is_heard_though_the_main_thread_sleeps() -> None:
    # Sent to another thread, it wakes nobody: like one that comes just before the sleep begins.
    stopped = threading.Event()

    def one(_: int) -> str:
        if not begun.is_set():
            begun.set()
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return "stopped" if stopped.wait(300) else "never stopped"

    begun = threading.Event()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        in_parallel(one, range(4), 2, stopped.set)
    assert stopped.is_set()
    assert time.monotonic() - started < 150


@pytest.mark.usefixtures("interruptible")
def test_what_must_end_ends_before_the_interrupt() -> None:
    steps = 0
    with pytest.raises(KeyboardInterrupt), undisturbed():
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
            steps += 1
    assert steps == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(ValueError, match="its own"), undisturbed():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("its own")
