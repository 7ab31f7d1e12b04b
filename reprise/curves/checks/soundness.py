"""Completeness of a run, and finite values of its metrics."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reprise.core.findings import State
from reprise.curves.result import CheckResult, found, note
from reprise.metrics import MetricTable, Series, spans

__all__ = ["CLIP_RATIO", "Event", "clipped", "collapse_events", "complete", "finite", "longest"]

# Metrics that every training step needs: a NaN there ends the experiment even if it happens once.
_VITAL = ("actor/grad_norm", "actor/loss", "actor/pg_loss", "critic/rewards/mean")
_ALL_CLIPPED = 0.99
CLIP_RATIO = "response_length/clip_ratio"


def complete(table: MetricTable, metric: str, expected: int) -> CheckResult:
    """Whether `metric` exists at every step 1..expected after attempts are merged."""
    numbers = {"expected": expected, "present": 0, "missing": expected}
    series = table.series(metric)
    if not len(series):
        near = difflib.get_close_matches(metric, table.names, n=3, cutoff=0.4)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        return found("complete.no-metric", table.run, numbers, metric=metric, near=hint)
    steps = np.arange(1, expected + 1)
    if series.looks_sampled:
        inside = (steps >= series.steps[0]) & (steps <= series.steps[-1])
        numbers |= {"present": len(series), "missing": int((~inside).sum())}
        return found(
            "complete.sampled",
            f"{metric}@1-{expected}",
            numbers,
            rows=len(series),
            steps=spans([*steps[inside]]),
        )
    missing = np.setdiff1d(steps, series.steps)
    numbers |= {"present": expected - len(missing), "missing": len(missing)}
    if not len(missing):
        text = f"all {expected} steps, none missing"
        return CheckResult("complete", State.PASSED, metric, text, "", numbers)
    return found(
        "complete.missing",
        f"{metric}@{missing[0]}",
        numbers,
        missing=len(missing),
        expected=expected,
        steps=spans(missing.tolist()),
    )


@dataclass(frozen=True, slots=True)
class Event:
    """A problem at a step; several show which came first."""

    step: int
    metric: str
    what: str

    def __str__(self) -> str:
        return f"{self.metric} {self.what} at step {self.step}"


def longest(*tables: MetricTable) -> float:
    """The longest answer of all steps of all runs, in tokens; NaN where none has that metric."""
    found = [table.series("response_length/max").finite().values for table in tables]
    return float(max((values.max() for values in found if len(values)), default=np.nan))


def clipped(table: MetricTable, limit: float) -> Series:
    """The share of answers that ended at the limit, where a longer answer than the step's is known.

    verl's clip ratio is the share of answers as long as the step's padded batch
    (verl/trainer/ppo/metric_utils.py). Where the batch is padded to its longest answer, answers of
    one length give 1 far below the limit. `limit`: longest(); NaN leaves the ratio as it is.
    """
    ratio = table.series(CLIP_RATIO).finite()
    lengths: dict[int, float] = {}
    for name in ("response_length/max", "response_length/mean"):
        series = table.series(name).finite()
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            lengths[step] = max(value, lengths.get(step, value))
    below = np.array([lengths.get(step, np.inf) < limit for step in ratio.steps.tolist()], bool)
    return replace(ratio, values=np.where(below, 0.0, ratio.values))


def collapse_events(table: MetricTable, reward: str) -> list[Event]:
    """What broke and in which order: first NaN or Inf of each metric, reward collapse, clipping.

    A metric without any finite value is unused and gives no event.
    """
    events = []
    for name in table.names:
        series = table.series(name)
        bad = ~np.isfinite(series.values)
        if bad.any() and not bad.all():
            first = int(series.steps[bad][0])
            events.append(Event(first, name, "is NaN or Inf"))
    events += _fall(table, reward)
    clip = clipped(table, longest(table))
    if len(clip) and clip.values[0] < _ALL_CLIPPED <= clip.values[-1]:
        start = _start_of_tail(clip.values >= _ALL_CLIPPED)
        text = "reaches 1.0 and stays (every answer runs into the length limit)"
        events.append(Event(int(clip.steps[start]), clip.metric, text))
    return sorted(events, key=lambda event: (event.step, not event.what.startswith("is")))


def _fall(table: MetricTable, reward: str) -> list[Event]:
    """A fall of the reward to its lowest value, flat from there to the end (3 steps or more)."""
    series = table.series(reward).finite()
    if len(series) < 6:
        return []
    start = _start_of_tail(series.values <= series.values.min() + 1e-12)
    if start == 0 or len(series) - start < 3:
        return []
    return [Event(int(series.steps[start]), reward, "falls to its floor and stays")]


def _start_of_tail(mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    """Index from which `mask` (shape (n,)) is true to the end; n when its last item is false."""
    false = np.flatnonzero(~mask)
    return int(false[-1]) + 1 if len(false) else 0


def finite(table: MetricTable, judged: tuple[str, ...]) -> CheckResult:
    """Whether numbers stayed numbers; on failure the message gives the order of events."""
    events = collapse_events(table, judged[0])
    unused: list[str] = []
    lone: list[str] = []
    broken: list[str] = []
    for name in table.names:
        series = table.series(name)
        bad = ~np.isfinite(series.values)
        if len(series) and bad.all():
            unused.append(name)
        elif bad.any():
            serious = name in judged or name in _VITAL or bad.sum() > 2
            (broken if serious else lone).append(name)
    numbers: dict[str, Any] = {"broken": broken, "isolated": lone, "never_finite": unused}
    notes = tuple(note("finite.unused", name) for name in unused)
    notes += tuple(note("finite.isolated", name) for name in lone)
    if empty := [name for name in judged if name in unused]:
        metrics = ", ".join(empty)
        return found("finite.no-value", judged[0], numbers, (), notes, metrics=metrics)
    if not broken:
        text = f"no NaN or Inf in {len(table.names) - len(unused) - len(lone)} metrics"
        return CheckResult("finite", State.PASSED, table.run, text, "", numbers, notes=notes)
    first = events[0]
    order = "; then ".join(str(event) for event in events[:6])
    numbers["events"] = [[event.step, event.metric, event.what] for event in events]
    numbers["last_good_step"] = first.step - 1
    return found(
        "finite.broken",
        f"{first.metric}@{first.step}",
        numbers,
        (),
        notes,
        events=order,
        first=first.step,
        last=first.step - 1,
    )
