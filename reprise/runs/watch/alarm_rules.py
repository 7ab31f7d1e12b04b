"""The rules: each looks at a run's history after a step and says what is wrong at its end.

The thresholds stand here and in docs/runs.md. Tests hold them against the published Hy3 run and
the recorded rehearsals, on which none may raise an alarm.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from reprise.core.findings import Severity
from reprise.runs.watch.alarm_history import PROBS, PROBS_RUN, REWARD, VITAL, Alarm, History

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
_MISMATCH = (
    "compare rollout and trainer: weight sync, engine and driver version, precision, the bridge; "
    "for vLLM on other cards than Hopper: engine_kwargs.vllm.disable_cascade_attn=true"
)


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
        # The others follow from it: they are counted, and not told apart.
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
    text, fix = f"NaN or Inf{more}, once", "watch it"
    if severity is Severity.ERROR:
        text = f"NaN or Inf{more}; last good step {history.sound_until(first)}"
        fix = f"look into step {first}; {history.resume(first)}"
    return Alarm("run-alarm-nan", severity, names[0], first, f"{names[0]} NaN", text, fix)


def floor(history: History) -> Iterator[Alarm]:
    """The reward fell to the lowest that there is and stays there for three steps."""
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
    text = f"fell to its lowest value, {level:g}, and stays there"
    fix = f"read the answers of step {first}; {history.resume(first)}"
    yield Alarm("run-alarm-reward", Severity.ERROR, REWARD, first, "reward floor", text, fix)


def no_signal(history: History) -> Iterator[Alarm]:
    """From the start every answer has got the same reward: nothing can be learned from it."""
    if len(history.values[REWARD]) != _START:
        return
    values = history.finite("critic/rewards/min") + history.finite("critic/rewards/max")
    if len(values) != 2 * _START or max(values) - min(values) > _SAME:
        return
    text = f"every answer of the first {_START} steps got the same reward, {values[0]:g}"
    fix = "score some answers by hand: reprise data check --reward"
    first = history.steps[REWARD][0]
    yield Alarm("run-alarm-reward", Severity.WARNING, REWARD, first, "no reward", text, fix)


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
    text = f"{tail[-1]:.3g}, below {_ENTROPY_SHARE:.0%} of its first steps' {usual:.3g}"
    fix = "answers no longer vary: a lower learning rate, a higher clip_ratio_high, or a KL term"
    what = "entropy collapse"
    yield Alarm("run-alarm-entropy", Severity.WARNING, _ENTROPY, first, what, text, fix)


def probs_diff(history: History, ceiling: float) -> Iterator[Alarm]:
    """Above the ceiling: once is a note; five valid steps in a row, grown or far, are an error."""
    tail = history.valid_probs()
    if not tail or tail[-1] <= ceiling:
        return
    first = history.probs_since(lambda value: value > ceiling)
    rule, what = "run-alarm-probs-diff", "probs diff above its ceiling"
    text = f"{tail[-1]:.4g}, above its ceiling {ceiling:g}"
    fix = "a single step is no fault; watch it"
    yield Alarm(rule, Severity.NOTE, PROBS, first, what, text, fix)
    if len(tail) < PROBS_RUN or min(tail) <= ceiling:
        return
    grown = history.growth()
    if grown < _GROWN and min(tail) <= _FAR * ceiling:
        return
    slope = (tail[-1] - tail[0]) / (PROBS_RUN - 1)
    text = (
        f"above its ceiling {ceiling:g} since step {first}, now {tail[-1]:.4g}, "
        f"{slope:+.2g} a step, {grown:.1f} times its lowest level"
    )
    yield Alarm(rule, Severity.ERROR, PROBS, first, what, text, _MISMATCH)


def growing(history: History, ceiling: float) -> Iterator[Alarm]:
    """The median of five steps is three times its lowest, and a third of the ceiling."""
    tail = history.valid_probs()
    grown = history.growth()
    if grown < _GROWING or statistics.median(tail) < ceiling / 3:
        return
    text = f"grows: {statistics.median(tail):.4g}, {grown:.1f} times its lowest level"
    first = history.last or 0
    rule, what = "run-alarm-probs-growth", "probs diff grows"
    yield Alarm(rule, Severity.WARNING, PROBS, first, what, text, _MISMATCH)


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
    text = f"{clip[-1]:.0%} of the answers are cut off at the length limit"
    severity, fix = Severity.ERROR, f"read the answers of step {first}; {history.resume(first)}"
    if not most:
        severity = Severity.WARNING
        fix = "raise data.max_response_length, or add the overlong penalty"
    yield Alarm("run-alarm-length", severity, _CLIP, first, "length limit", text, fix)


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
