"""Progress of the commands that work through files: one bar or line for each title."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reprise.core.progress import Display, Task

__all__ = ["Bars", "showing"]


class Bars:
    """One bar or line for each title that reports progress."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._tasks: dict[str, Task] = {}

    def __call__(self, title: str, count: int, total: int | None) -> None:
        """Say that `count` more of `title` is done."""
        if title not in self._tasks:
            unit = "bytes" if title.startswith("fetch") else "rows"
            self._tasks[title] = self._display.task(title, total, unit)
        self._tasks[title].advance(count)

    def end(self) -> None:
        """Close all of them."""
        for task in self._tasks.values():
            task.end()


@contextmanager
def showing() -> Iterator[tuple[Bars, Callable[[str], None]]]:
    """Progress for as long as the block runs, and a way to print a line above it."""
    with Display() as display:
        bars = Bars(display)
        yield bars, display.line
        bars.end()
