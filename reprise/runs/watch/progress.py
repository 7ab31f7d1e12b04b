"""Progress of a job: what counts, and for how long none may come."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["PhaseReader", "ProgressWatch", "StepLine"]

_VARIABLE = re.compile(r"0x[0-9a-f]+|\d+|\x1b\[[0-9;]*m")


# What the log of verl says when a phase of its start begins, in their order.
_PHASES = (
    ("driver", re.compile(r"ray init kwargs|Connecting to existing Ray")),
    ("trainer process", re.compile(r"\(TaskRunner")),
    ("actor and reference model", re.compile(r"\(WorkerDict")),
    ("vLLM server", re.compile(r"\(vLLMHttpServer")),
    ("agent loop and reward workers", re.compile(r"\((?:AgentLoopWorker|SeededWorker)")),
)


@dataclass(slots=True)
class PhaseReader:
    """Reads from the log which phase a job's start has reached."""

    reached: int = -1

    def line(self, text: str) -> str | None:
        """The phase that this line begins, or None when it is one of those seen before."""
        for index in range(len(_PHASES) - 1, self.reached, -1):
            if _PHASES[index][1].search(text):
                self.reached = index
                return _PHASES[index][0]
        return None


@dataclass(frozen=True, slots=True)
class StepLine:
    """One step of training as it is shown to the operator."""

    step: int
    seconds: float | None
    reward: float | None
    validation: float | None


@dataclass(slots=True)
class ProgressWatch:
    """Distinguishes a job that works from one that only repeats itself.

    Progress is a metrics record, or a log line of a kind not seen before: a process that waits
    forever often keeps printing the same warning with another time in it. Times are seconds
    of a monotonic clock, given by the caller.
    """

    limit: float
    started: float
    last: float = field(init=False)
    _kinds: set[int] = field(default_factory=set)
    _records: int = 0

    def __post_init__(self) -> None:
        self.last = self.started

    def line(self, text: str, now: float) -> None:
        """Take note of one log line."""
        kind = hash(_VARIABLE.sub("#", text))
        if kind not in self._kinds:
            self._kinds.add(kind)
            self.last = now

    def records(self, count: int, now: float) -> None:
        """Take note of how many metrics records there are."""
        if count > self._records:
            self._records = count
            self.last = now

    def paused(self, seconds: float) -> None:
        """Take note that this process, and with it the job, could not run for `seconds`."""
        self.last += seconds

    def stalled(self, now: float) -> bool:
        """Whether nothing new came for `limit` seconds."""
        return now - self.last > self.limit
