"""Progress of long work: bars on a terminal, plain lines with the time anywhere else.

Everything goes to standard error, so that standard output stays a command's own.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any, Protocol, Self, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["PLAIN_INTERVAL", "Display", "Screen", "Stderr", "Task", "error_console", "task"]

# Seconds between two plain lines of one task: shows progress, keeps a log short.
PLAIN_INTERVAL = 15.0
_PROXIED = "rich_proxied_file"


class Stderr:
    """Standard error that never raises: where a terminal has vanished, the work goes on.

    A closed session (EIO), a pipe whose reader ended (EPIPE) or a full disk would end an hour of
    training by a line about it.
    """

    def __getattr__(self, name: str) -> Any:
        """Whatever else a stream has: encoding, fileno, isatty."""
        if name == _PROXIED:
            # Rich would take the stream behind this one, which raises.
            raise AttributeError(name)
        return getattr(self._stream(), name)

    def write(self, text: str) -> int:
        """Write, or lose the text."""
        with contextlib.suppress(OSError, ValueError):
            self._stream().write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or lose what is left."""
        with contextlib.suppress(OSError, ValueError):
            self._stream().flush()

    @staticmethod
    def _stream() -> Any:
        """Standard error itself: while something is drawn, Rich puts a proxy in its place."""
        return getattr(sys.stderr, _PROXIED, sys.stderr)


_STDERR = Stderr()


def error_console(**options: Any) -> Console:
    """A Rich console on standard error that survives the end of its terminal."""
    return Console(file=cast(IO[str], _STDERR), highlight=False, **options)


class Task:
    """One piece of long work, as its caller sees it. Made by `Display.task`."""

    def __init__(self, display: Display, title: str, total: float | None, unit: str) -> None:
        self.title = title
        self.total = total
        self.unit = unit
        self.done = 0.0
        self.detail = ""
        self._display = display
        self._bar: TaskID | None = display.add_bar(title, total)
        self._last = time.monotonic()
        self._ended = False
        if self._bar is None:
            display.line(title)

    def update(self, done: float, detail: str = "", total: float | None = None) -> None:
        """Say that `done` of the total is done (in `unit`); `detail` is shown after it."""
        self.done, self.detail = done, detail
        if total is not None:
            self.total = total
        if self._bar is not None:
            self._display.move_bar(self._bar, done, self.total, detail)
        elif time.monotonic() - self._last >= self._display.interval:
            self._last = time.monotonic()
            self._display.line(self._text())

    def advance(self, amount: float = 1, detail: str = "") -> None:
        """Say that `amount` more is done."""
        self.update(self.done + amount, detail or self.detail)

    def end(self, note: str = "done") -> None:
        """Close the task with a last line; a second call does nothing."""
        if self._ended:
            return
        self._ended = True
        if self._bar is not None:
            self._display.drop_bar(self._bar)
        self._display.line(f"{self.title}: {note}")

    def _text(self) -> str:
        amount = f"{self.done:g}" if self.total is None else f"{self.done:g}/{self.total:g}"
        return " ".join(filter(None, [f"{self.title}: {amount}", self.unit, self.detail]))


class Drawing(Protocol):
    """Something that Rich redraws in place."""

    @property
    def console(self) -> Console:
        """Where lines above it go."""
        ...

    def start(self) -> None:
        """Begin to draw."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


class Screen:
    """Standard error: a drawing with lines above it, or the lines alone; a context manager.

    `drawing` is drawn while the block runs; None leaves plain lines with the time of day.
    """

    def __init__(self, drawing: Drawing | None) -> None:
        self._drawing = drawing

    def __enter__(self) -> Self:
        """Start drawing."""
        if self._drawing is not None:
            self._drawing.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing; what was printed as lines stays."""
        if self._drawing is not None:
            self._drawing.stop()

    def line(self, text: str) -> None:
        """Print one line, above the drawing if there is one."""
        if self._drawing is not None:
            self._drawing.console.print(text, markup=False, soft_wrap=True)
        else:
            _STDERR.write(f"{time.strftime('%H:%M:%S')} {text}\n")
            _STDERR.flush()


class Display(Screen):
    """Shows any number of tasks at once; a context manager.

    `plain` forces lines; by default they are used when standard error is not a terminal.
    `interval` is the least time between two plain lines of a task, in seconds.
    """

    def __init__(self, plain: bool | None = None, interval: float = PLAIN_INTERVAL) -> None:
        self.interval = interval
        console = error_console(soft_wrap=True)
        if plain is None:
            plain = not console.is_terminal
        self._progress = None if plain else _bars(console)
        super().__init__(self._progress)

    def task(self, title: str, total: float | None = None, unit: str = "") -> Task:
        """Begin a task of `total` units; without a total only the amount done is shown."""
        return Task(self, title, total, unit)

    def add_bar(self, title: str, total: float | None) -> TaskID | None:
        """A bar for a task, or None where there are no bars."""
        if self._progress is None:
            return None
        return self._progress.add_task(title, total=total, detail="")

    def move_bar(self, bar: TaskID, done: float, total: float | None, detail: str) -> None:
        """Set a bar to `done` of `total`."""
        if self._progress is not None:
            self._progress.update(bar, completed=done, total=total, detail=detail)

    def drop_bar(self, bar: TaskID) -> None:
        """Remove a bar."""
        if self._progress is not None:
            self._progress.remove_task(bar)


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        console=console,
        transient=True,
    )


@contextmanager
def task(title: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
    """Show one task for as long as the block runs, and show whether it succeeded."""
    with Display() as display:
        shown = display.task(title, total, unit)
        try:
            yield shown
        except BaseException:
            shown.end("not finished")
            raise
        shown.end()
