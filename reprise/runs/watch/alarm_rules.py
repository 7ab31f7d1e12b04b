"""The rules: each checks the history of a run after a step.

The thresholds are here and in docs/runs.md. Tests check them on the published Hy3 run and the
recorded rehearsals, which must not raise an alarm.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from reprise.core.findings import Severity
from reprise.runs.watch.alarm_history import PROBS, PROBS_RUN, REWARD, VITAL, Alarm, History, alarm

__all__ = ["broken", "entropy", "floor", "growing", "length", "no_signal", "probs_diff"]

_ENTROPY = "actor/entropy"
_CLIP = "response_length/clip_ratio"
_LENGTH = "response_length/mean"
_LONGEST = "response_length/max"
_OFTEN = 3
# Steps before a fall that say whether the reward was better: of a sparse reward most are at its
# floor.
_BEFORE = 20
# Consecutive steps that make a state of what could be an accident.
_RUN = 3
_SAME = 1e-9
# Steps at the start that say what is usual, and after which "from the start" is said.
_START = 5
# A healthy rehearsal falls to 0.16 of its first entropy.
_ENTROPY_SHARE = 0.05
# The published Hy3 run has five steps in a row above its ceiling, and never exceeds 1.21 times
# its lowest median.
_GROWN, _GROWING, _FAR = 1.5, 3.0, 2.0
_MOST, _MANY = 0.9, 0.5
_LONGER = 2.0


def broken(history: History) -> Iterator[Alarm]:
    """What is newly NaN or Inf. What never was finite is unused, but for the vital metrics."""
    vital: list[str] = []
    often: dict[str, int] = {}
    lone: list[str] = []
    for name, values in history.values.items():
        if history.steps[name][-1:] != [history.last] or math.isfinite(values[-1]):
            continue
        bad = [i for i, value in enumerate(values) if not math.isfinite(value)]
        if name in VITAL:
            vital += [name] if len(bad) == 1 else []
        elif len(bad) < len(values) and len(bad) == _OFTEN:
            often[name] = history.steps[name][bad[0]]
        elif len(bad) < len(values) and len(bad) == 1:
            lone.append(name)
    last = history.last or 0
    if vital:
        # The others follow from it: they are counted, not listed.
        names = [*sorted(vital, key=VITAL.index), *often, *lone]
        yield _nan(history, names, last, Severity.ERROR)
    elif any(name in VITAL for name in _bad_now(history)):
        return
    elif often:
        names = sorted(often, key=lambda name: (often[name], name))
        yield _nan(history, names, often[names[0]], Severity.ERROR)
    elif lone:
        yield _nan(history, sorted(lone), last, Severity.NOTE)


def _bad_now(history: History) -> Iterator[str]:
    for name in VITAL:
        values = history.values[name]
        if history.steps[name][-1:] == [history.last] and not math.isfinite(values[-1]):
            yield name


def _nan(history: History, names: list[str], first: int, severity: Severity) -> Alarm:
    more = f" and {len(names) - 1} more metrics" if len(names) > 1 else ""
    metric, what = names[0], f"{names[0]} NaN"
    if severity is not Severity.ERROR:
        return alarm(severity, "run-alarm-nan.once", metric, first, what, more=more)
    known: dict[str, object] = {"more": more, "good": history.sound_until(first)}
    known |= {"step": first, "resume": history.resume(first)}
    return alarm(severity, "run-alarm-nan.broken", metric, first, what, **known)


def floor(history: History) -> Iterator[Alarm]:
    """The reward fell to its lowest value and stays there for three steps."""
    tail = history.tail(REWARD, _RUN)
    if len(tail) < _RUN or max(tail) - min(tail) > _SAME:
        return
    before = history.finite(REWARD)[:-_RUN]
    level = tail[-1]
    if len(before) < _RUN or min(before) < level - _SAME:
        return
    if statistics.median(before[-_BEFORE:]) <= level + _SAME:
        return
    first = history.since(REWARD, lambda value: value <= level + _SAME)
    known: dict[str, object] = {"level": level, "step": first, "resume": history.resume(first)}
    what = "reward floor"
    yield alarm(Severity.ERROR, "run-alarm-reward.floor", REWARD, first, what, **known)


def no_signal(history: History) -> Iterator[Alarm]:
    """Every answer from the start got the same reward: there is no learning signal."""
    if len(history.values[REWARD]) != _START:
        return
    values = history.finite("critic/rewards/min") + history.finite("critic/rewards/max")
    if len(values) != 2 * _START or max(values) - min(values) > _SAME:
        return
    first = history.steps[REWARD][0]
    known: dict[str, object] = {"steps": _START, "level": values[0]}
    what = "no reward"
    yield alarm(Severity.WARNING, "run-alarm-reward.constant", REWARD, first, what, **known)


def entropy(history: History) -> Iterator[Alarm]:
    """Below a twentieth of its first five steps' median for three steps."""
    tail = history.tail(_ENTROPY, _RUN)
    if len(tail) < _RUN or len(history.values[_ENTROPY]) < _START + _RUN:
        return
    usual = statistics.median(history.finite(_ENTROPY)[:_START])
    limit = _ENTROPY_SHARE * usual
    if usual <= 0 or max(tail) >= limit:
        return
    first = history.since(_ENTROPY, lambda value: value < limit)
    known: dict[str, object] = {"now": tail[-1], "share": _ENTROPY_SHARE, "usual": usual}
    what = "entropy collapse"
    yield alarm(Severity.WARNING, "run-alarm-entropy.collapsed", _ENTROPY, first, what, **known)


def probs_diff(history: History, ceiling: float) -> Iterator[Alarm]:
    """Above the ceiling: once is a note; five valid steps in a row, grown or far, are an error."""
    tail = history.valid_probs()
    if not tail or tail[-1] <= ceiling:
        return
    first = history.probs_since(lambda value: value > ceiling)
    what = "probs diff above the ceiling"
    known: dict[str, object] = {"now": tail[-1], "ceiling": ceiling}
    yield alarm(Severity.NOTE, "run-alarm-probs-diff.once", PROBS, first, what, **known)
    if len(tail) < PROBS_RUN or min(tail) <= ceiling:
        return
    grown = history.growth()
    if grown < _GROWN and min(tail) <= _FAR * ceiling:
        return
    slope = (tail[-1] - tail[0]) / (PROBS_RUN - 1)
    known |= {"step": first, "slope": slope, "grown": grown}
    yield alarm(Severity.ERROR, "run-alarm-probs-diff.sustained", PROBS, first, what, **known)


def growing(history: History, ceiling: float) -> Iterator[Alarm]:
    """The median of five steps is three times its lowest, and a third of the ceiling."""
    tail = history.valid_probs()
    grown = history.growth()
    if grown < _GROWING or statistics.median(tail) < ceiling / 3:
        return
    first = history.last or 0
    known: dict[str, object] = {"now": statistics.median(tail), "grown": grown}
    what = "probs diff grows"
    yield alarm(Severity.WARNING, "run-alarm-probs-growth.grows", PROBS, first, what, **known)


def length(history: History, limit: int | None) -> Iterator[Alarm]:
    """Answers run into the length limit for three steps: half a warning, nine of ten an error.

    verl's clip ratio counts the answers that are as long as the longest of their batch
    (trainer/ppo/metric_utils.py), so that it says something only where that reaches `limit`,
    data.max_response_length; where that is not known, where answers became twice as long.
    """
    clip = history.tail(_CLIP, _RUN)
    if len(clip) < _RUN or min(clip) < _MANY or not _at_the_limit(history, limit):
        return
    most = min(clip) >= _MOST
    share = _MOST if most else _MANY
    first = history.since(_CLIP, lambda value: value >= share)
    known: dict[str, object] = {"share": clip[-1]}
    what = "length limit"
    if not most:
        yield alarm(Severity.WARNING, "run-alarm-length.many", _CLIP, first, what, **known)
        return
    known |= {"step": first, "resume": history.resume(first)}
    yield alarm(Severity.ERROR, "run-alarm-length.most", _CLIP, first, what, **known)


def _at_the_limit(history: History, limit: int | None) -> bool:
    longest = history.tail(_LONGEST, _RUN)
    if limit is not None and longest:
        return min(longest) >= limit
    mean = history.finite(_LENGTH)
    if len(mean) <= _RUN:
        return False
    if limit is not None:
        return min(mean[-_RUN:]) >= _MANY * limit
    return min(mean[-_RUN:]) >= _LONGER * statistics.median(mean[:-_RUN])
