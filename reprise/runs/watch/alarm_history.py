"""The numbers of a run in the order of its steps, as the alarms look at them."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, takewhile

from reprise.core.findings import Severity
from reprise.core.rules import render, rule_id

__all__ = ["PROBS", "PROBS_RUN", "REWARD", "VITAL", "Alarm", "History", "alarm"]

REWARD = "critic/rewards/mean"
PROBS = "training/rollout_probs_diff_mean"
PROBS_RUN = 5
"""Steps over which the probs diff's medians are taken: a spike of one step moves none."""
VITAL = ("actor/grad_norm", "actor/loss", "actor/pg_loss", REWARD)
"""Metrics that every training step needs: one NaN is an error; in others, the third one."""
_PROBS_VALID = "training/rollout_probs_diff_valid"
_MEDIAN = "median of the probs diff"
_VALID = "valid probs diff"


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm: the state holds from step `first` on, `what` is its event in a few words."""

    rule: str
    severity: Severity
    metric: str
    first: int
    what: str
    message: str
    fix: str


def alarm(
    severity: Severity, text: str, metric: str, first: int, what: str, **values: object
) -> Alarm:
    """An alarm with the `text` of the registry (as in `run-alarm-nan.once`)."""
    message, fix = render(text, values)
    return Alarm(rule_id(text), severity, metric, first, what, message, fix)


@dataclass(slots=True)
class History:
    """Steps and values of each metric, ascending. `saved` gives the complete checkpoints."""

    saved: Callable[[], Iterator[int]]
    last: int | None = None
    steps: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Take the metrics of one step, which comes after all others."""
        self.last = step
        for name, value in values.items():
            self._append(name, step, value)
        probs = values.get(PROBS, math.nan)
        if values.get(_PROBS_VALID, 1) != 0 and math.isfinite(probs):
            self._append(_VALID, step, probs)
            recent = self.values[_VALID][-PROBS_RUN:]
            if len(recent) == PROBS_RUN:
                self._append(_MEDIAN, step, statistics.median(recent))

    def _append(self, name: str, step: int, value: float) -> None:
        self.steps[name].append(step)
        self.values[name].append(value)

    def rewind(self, step: int) -> None:
        """Forget `step` and everything after it."""
        for name, steps in self.steps.items():
            start = bisect_left(steps, step)
            del steps[start:], self.values[name][start:]

    def back(self, name: str) -> Iterator[tuple[int, float]]:
        """The finite values of `name`, newest first."""
        pairs = zip(reversed(self.steps[name]), reversed(self.values[name]), strict=True)
        return ((step, value) for step, value in pairs if math.isfinite(value))

    def tail(self, name: str, count: int) -> list[float]:
        """The last `count` finite values, oldest first; fewer where there are no more."""
        return [value for _, value in islice(self.back(name), count)][::-1]

    def finite(self, name: str) -> list[float]:
        """All finite values, oldest first."""
        return [value for value in self.values[name] if math.isfinite(value)]

    def valid_probs(self) -> list[float]:
        """The probs diff of the last five steps that verl marked valid, oldest first."""
        return self.values[_VALID][-PROBS_RUN:]

    def probs_since(self, holds: Callable[[float], bool]) -> int:
        """As `since`, over the valid steps."""
        return self.since(_VALID, holds)

    def since(self, name: str, holds: Callable[[float], bool]) -> int:
        """The step from which `holds` is true of `name` to its end."""
        first = self.last or 0
        for step, value in self.back(name):
            if not holds(value):
                break
            first = step
        return first

    def growth(self) -> float:
        """The probs diff's newest median over its lowest one; 1 where there is none."""
        medians = self.values[_MEDIAN]
        lowest = min(medians, default=0.0)
        return medians[-1] / lowest if lowest > 0 else 1.0

    def sound_until(self, first: int) -> int:
        """The last good step when `first` is a bad one: before what is vital broke and stayed so.

        One whose gradient is not finite may be the only one: verl's FSDP engine does not take it.
        """
        for name in VITAL:
            newest = zip(reversed(self.steps[name]), reversed(self.values[name]), strict=True)
            broken = takewhile(lambda pair: not math.isfinite(pair[1]), newest)
            first = min([first, *(step for step, _ in broken)])
        return first - 1

    def resume(self, first: int) -> str:
        """Where to continue when step `first` is a bad one."""
        first = self.sound_until(first) + 1
        good = [step for step in self.saved() if step < first]
        if good:
            return f"continue from the checkpoint of step {max(good)}"
        return f"no complete checkpoint exists before step {first}"
