"""Rules of a run that leaves its usual level: entropy, gradient norm, length, and a falling reward.

What is usual is the run's own start; the factors are far outside of every recorded good run.
"""

from __future__ import annotations

import itertools
import math
import operator
import statistics
from collections.abc import Iterator
from functools import partial

from reprise.core.findings import Severity
from reprise.runs.watch.alarm_history import REWARD, Alarm, History, alarm

__all__ = ["falling", "leaves_its_level"]

_RUN = 3
_START = 5
_ENTROPY, _GRAD, _LENGTH = "actor/entropy", "actor/grad_norm", "response_length/mean"
# Over three steps, 20 recorded good runs have an entropy of at most 0.85 times and a gradient norm
# of at most 2.6 times that of their first steps, and a length of at least 0.97 times.
_FACTORS = {_ENTROPY: 2.5, _GRAD: 20.0}
_SHORT = 0.25
_WINDOW = 10
# The same runs lose at most 0.46 of what they gained, and at most 4.1 standard errors.
_LOST, _ERRORS = 0.5, 5.0


def leaves_its_level(history: History) -> Iterator[Alarm]:
    """Entropy or gradient norm far above the first steps', or answers of a quarter of the length.

    For three steps in a row; what is usual is the median of the first five.
    """
    for metric, factor in _FACTORS.items():
        tail, usual = history.tail(metric, _RUN), _usual(history, metric)
        if len(tail) == _RUN and usual > 0 and min(tail) > factor * usual:
            first = history.since(metric, partial(operator.lt, factor * usual))
            known: dict[str, object] = {"now": tail[-1], "factor": tail[-1] / usual}
            known |= {"step": first, "usual": usual}
            text = "run-alarm-entropy.grown" if metric == _ENTROPY else "run-alarm-gradient.grown"
            what = "entropy grows" if metric == _ENTROPY else "gradient norm grows"
            yield alarm(Severity.WARNING, text, metric, first, what, **known)
    tail, usual = history.tail(_LENGTH, _RUN), _usual(history, _LENGTH)
    if len(tail) == _RUN and usual > 0 and max(tail) < _SHORT * usual:
        first = history.since(_LENGTH, lambda value: value < _SHORT * usual)
        known = {"now": tail[-1], "usual": usual, "step": first}
        what = "answers shrink"
        yield alarm(Severity.WARNING, "run-alarm-length.short", _LENGTH, first, what, **known)


def _usual(history: History, metric: str) -> float:
    values = history.finite(metric)
    if len(values) < _START + _RUN:
        return math.nan
    return statistics.median(values[:_START])


def falling(history: History) -> Iterator[Alarm]:
    """The mean reward of ten steps lost half of what the run had gained, beyond its step noise."""
    values = history.finite(REWARD)
    if len(values) < 2 * _WINDOW or history.steps[REWARD][-1:] != [history.last]:
        return
    sums = [sum(values[i : i + _WINDOW]) for i in range(len(values) - _WINDOW + 1)]
    best = max(range(len(sums)), key=sums.__getitem__)
    most, now = sums[best] / _WINDOW, sums[-1] / _WINDOW
    start = statistics.fmean(values[:_START])
    changes = [b - a for a, b in itertools.pairwise(values)]
    noise = math.sqrt(sum(change**2 for change in changes) / (2 * len(changes)))
    lost = most - now
    if most <= start or lost < _LOST * (most - start):
        return
    if lost <= _ERRORS * noise * math.sqrt(2 / _WINDOW):
        return
    first = history.steps[REWARD][best + _WINDOW - 1]
    known: dict[str, object] = {"now": now, "best": most, "step": first}
    known |= {"resume": history.resume(first)}
    what = "reward falls"
    yield alarm(Severity.WARNING, "run-alarm-reward.falling", REWARD, first, what, **known)
