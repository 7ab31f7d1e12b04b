"""What the operator sees of a run: phases and steps, live on a terminal, plain lines in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from reprise.run.progress import StepLine

__all__ = ["Display", "Training"]


class Display:
    """Progress on standard error, so that standard output stays free for the answer."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = Console(file=sys.stderr, highlight=False, quiet=quiet)
        self._started = time.monotonic()
        self.phases: dict[str, float] = {}

    def line(self, text: str) -> None:
        """One line with the seconds since the command began."""
        elapsed = time.monotonic() - self._started
        self._console.print(f"[{elapsed:6.1f} s] {text}", markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Say when a phase has ended and how long it took."""
        begun = time.monotonic()
        yield
        seconds = time.monotonic() - begun
        self.phases[name] = seconds
        self.line(f"{name}: {seconds:.1f} s")

    @contextlib.contextmanager
    def training(self, total: int) -> Iterator[Training]:
        """Show the steps of a job; the block ends with the job."""
        if not self._console.is_terminal:
            yield Training(self, total)
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} {task.fields[detail]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task("starting", total=total, detail="")
            yield Training(self, total, bar, task)


@dataclass(slots=True)
class Training:
    """The live view of one job."""

    display: Display
    total: int
    bar: Progress | None = None
    task: TaskID | None = None
    _seconds: list[float] = field(default_factory=list)

    def phase(self, name: str) -> None:
        """Show which phase of its start the job has reached."""
        self._show(f"start-up: {name}", 0, "")

    def step(self, step: StepLine, total: int) -> None:
        """Show one step: reward, validation, seconds, and the time that is left."""
        if step.seconds is not None:
            self._seconds.append(step.seconds)
        parts = []
        if step.reward is not None:
            parts.append(f"reward {step.reward:.3f}")
        if step.validation is not None:
            parts.append(f"validation {step.validation:.3f}")
        if step.seconds is not None:
            recent = sorted(self._seconds[-5:])
            left = recent[len(recent) // 2] * (total - step.step)
            parts.append(f"{step.seconds:.1f} s/step, {left / 60:.1f} min left")
        self._show(f"step {step.step}/{total}", step.step, ", ".join(parts))

    def _show(self, title: str, completed: int, detail: str) -> None:
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, description=title, completed=completed, detail=detail)
        else:
            self.display.line(f"{title} {detail}".rstrip())
