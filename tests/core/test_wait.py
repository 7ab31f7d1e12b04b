from __future__ import annotations

import threading
import time

import pytest

from reprise.core.wait import wait_until


def test_an_answer_that_is_there_costs_no_wait() -> None:
    asked = []
    assert wait_until(lambda: asked.append(1) or "yes", 60) == "yes"
    assert len(asked) == 1


def test_an_answer_is_taken_when_it_comes() -> None:
    came = threading.Event()
    threading.Timer(0.1, came.set).start()
    assert wait_until(came.is_set, 30, every=0.01) is True


def test_the_last_answer_is_returned_when_time_is_up() -> None:
    asked = []
    assert wait_until(lambda: asked.append(1), 0.05, every=0.02) is None
    assert len(asked) >= 2


def test_without_time_it_asks_once() -> None:
    asked = []
    assert wait_until(lambda: bool(asked.append(1)), 0) is False
    assert len(asked) == 1


def test_the_end_is_asked_for_once_more() -> None:
    start = time.monotonic()
    assert wait_until(lambda: time.monotonic() - start >= 0.1, 0.1, every=60) is True


def test_an_exception_passes_through() -> None:
    def broken() -> bool:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        wait_until(broken, 1)
