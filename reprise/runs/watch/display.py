"""Display of a run: phases with their seconds, then step, reward and time left."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from reprise.core.progress import Display, Task
from reprise.runs.watch.progress import StepLine

__all__ = ["RunDisplay", "Training"]


class RunDisplay:
    """Progress of one run on standard error; nothing at all when `quiet`."""

    def __init__(self, quiet: bool = False) -> None:
        # Every step gets its line in a log: a step of the rehearsal takes seconds, one of a
        # cluster minutes.
        self._display = Display(interval=0.0)
        self._quiet = quiet

    def line(self, text: str) -> None:
        """One line."""
        if not self._quiet:
            self._display.line(text)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Say when a phase has ended and how long it took."""
        begun = time.monotonic()
        yield
        self.line(f"{name}: {time.monotonic() - begun:.1f} s")

    @contextlib.contextmanager
    def training(self, total: int) -> Iterator[Training]:
        """Show the steps of a job; the block ends with the job."""
        if self._quiet:
            yield Training(total, None)
            return
        with self._display:
            task = self._display.task("training", total, "steps")
            yield Training(total, task)
            task.end(f"ended at step {task.done:g} of {total}")


@dataclass(slots=True)
class Training:
    """The live view of one job of `total` steps."""

    total: int
    task: Task | None
    _seconds: list[float] = field(default_factory=list)

    def phase(self, name: str) -> None:
        """Show which phase of its start the job has reached."""
        if self.task is not None:
            self.task.update(0, f"start-up: {name}")

    def step(self, step: StepLine) -> None:
        """Show one step: reward, validation, seconds a step and the time that is left."""
        if step.seconds is not None:
            self._seconds.append(step.seconds)
        parts = []
        if step.reward is not None:
            parts.append(f"reward {step.reward:.3f}")
        if step.validation is not None:
            parts.append(f"validation {step.validation:.3f}")
        if self._seconds:
            # The median of the last steps: single ones stand out when a validation is due.
            seconds = statistics.median(self._seconds[-5:])
            left = seconds * (self.total - step.step) / 60
            parts.append(f"{seconds:.1f} s/step, {left:.1f} min left")
        if self.task is not None:
            self.task.update(step.step, ", ".join(parts))
