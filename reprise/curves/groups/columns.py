"""What is compared: numbers of each run, one a column, for every metric that the judge knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprise.curves.checks.alias import ValidationSet, find_metric
from reprise.curves.checks.compared import split
from reprise.curves.checks.levels import log_medians
from reprise.curves.checks.mismatch import valid_probs_diff
from reprise.curves.reference import Metrics, ProbsDiffSpec, RewardSpec, ValidationSpec
from reprise.curves.spread import coverage, fill
from reprise.metrics import MetricTable, Series
from reprise.metrics.table import FloatArray

__all__ = ["Column", "Member", "columns"]

Span = tuple[int, int]
# As for one run: a window of which a fifth is missing says too little.
_COVERED = 0.8
# What the guards know: it has no better side. Below its floor a level is rounding.
_LEVELS = ("actor/entropy", "actor/grad_norm", "response_length/mean")
_SHARES = ("response_length/clip_ratio", "response/aborted_ratio")
_TINY, _MISMATCH_FLOOR = 1e-12, 1e-6
# The loss that an improvement must exclude where no margin is stated: as in the checks of one run.
_REWARD_SHARE, _VALIDATION_SHARE, _LEAST_VALIDATION = 0.6, 0.5, 0.05


@dataclass(frozen=True, slots=True)
class Member:
    """One run of a group: its metrics, and its validation set where it is known."""

    table: MetricTable
    validation: ValidationSet | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One number a run: `a` of shape (k,), `b` of shape (m,); NaN: the run has too few values.

    `better`: 1 where higher is better, -1 where lower is, 0 where neither is. `decides`: whether
    the answer rests on it. `ratio`: the numbers are logarithms. `margin`: the loss that an
    improvement must exclude, in the metric's unit; NaN: unknown. `reason`: why there is no number.
    """

    metric: str
    first: int
    last: int
    a: FloatArray
    b: FloatArray
    better: int = 0
    decides: bool = False
    ratio: bool = False
    margin: float = np.nan
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Groups:
    a: Sequence[Member]
    b: Sequence[Member]
    steps: int

    def has(self, metric: str) -> bool:
        return any(metric in one.table for one in (*self.a, *self.b))

    def means(self, metric: str, span: Span) -> Column:
        """The mean of `metric` over `span`, a number a run."""

        def mean(one: Member) -> float:
            series = fill(one.table.series(metric), 1, self.steps)
            if coverage(series, [span])[0] < _COVERED:
                return np.nan
            return float(series.between(*span).values.mean())

        a, b = np.array([mean(one) for one in self.a]), np.array([mean(one) for one in self.b])
        return Column(metric, *span, a, b)

    def levels(
        self, metric: str, spans: list[Span], floor: float, spec: ProbsDiffSpec | None
    ) -> Iterator[Column]:
        """The logarithm of the median of `metric` over each span, a number a run."""

        def medians(group: Sequence[Member]) -> FloatArray:
            found = []
            for one in group:
                series = one.table.series(metric).finite()
                series = valid_probs_diff(one.table, spec) if spec is not None else series
                found.append(log_medians(series, spans, floor))
            return np.array(found)

        a, b = medians(self.a), medians(self.b)
        for i, span in enumerate(spans):
            yield Column(metric, *span, a[:, i], b[:, i], ratio=True)


def columns(
    a: Sequence[Member], b: Sequence[Member], metrics: Metrics, steps: int, margin: float | None
) -> Iterator[Column]:
    """The columns of both groups over the steps 1..`steps`, those that decide first.

    `margin`: the difference that counts, in the unit of reward and validation; None: not stated.
    """
    groups = _Groups(a, b, steps)
    spec = metrics.reward
    windows = split(spec.windows, steps)
    spans = list(dict.fromkeys([windows[-1], (windows[0][0], windows[-1][1])]))
    yield from _reward(groups, spec, spans, margin)
    if metrics.validation is not None:
        yield from _validation(groups, metrics.validation, margin)
    for probs in (metrics.probs_diff, metrics.kl):
        if probs is not None:
            valid = probs if isinstance(probs, ProbsDiffSpec) else None
            for column in groups.levels(probs.metric, spans, _MISMATCH_FLOOR, valid):
                yield replace(column, better=-1)
    for metric in filter(groups.has, _LEVELS):
        yield from groups.levels(metric, spans, _TINY, None)
    for metric in filter(groups.has, _SHARES):
        yield from (groups.means(metric, span) for span in spans)


def _reward(
    groups: _Groups, spec: RewardSpec, spans: list[Span], margin: float | None
) -> Iterator[Column]:
    sign = 1 if spec.direction == "up" else -1
    found = [groups.means(spec.metric, span) for span in spans]
    stated = margin if margin is not None else spec.margin
    if stated is None:
        curves = [fill(one.table.series(spec.metric), 1, groups.steps).values for one in groups.a]
        starts = [values[: max(1, len(values) // 10)].mean() for values in curves if len(values)]
        gain = sign * float(found[0].a.mean() - np.mean(starts)) if starts else np.nan
        stated = _REWARD_SHARE * gain if gain > 0 else np.nan
    for column in found:
        yield replace(column, better=sign, decides=True, margin=stated)


def _validation(groups: _Groups, spec: ValidationSpec, margin: float | None) -> Iterator[Column]:
    """The mean of the second half's points, and of all points but that before training."""
    sign = 1 if spec.direction == "up" else -1
    steps = groups.steps
    whole = Column(
        spec.metric, 1, steps, np.full(len(groups.a), np.nan), np.full(len(groups.b), np.nan)
    )
    whole = replace(whole, better=sign, decides=True)
    curves: list[Series] = []
    for one in (*groups.a, *groups.b):
        alias = find_metric(one.table, spec, one.validation)
        if alias.metric is None:
            yield replace(whole, reason=alias.reason)
            return
        curves.append(one.table.series(alias.metric).finite().between(0, steps))
    planned = np.unique(np.concatenate([curve.steps for curve in curves]))
    common = planned
    for curve in curves:
        common = np.intersect1d(common, curve.steps)
    late, shared = int((planned > steps / 2).sum()), int((common > steps / 2).sum())
    if shared < max(1, late / 2):
        reason = f"the runs share {shared} of {late} validation points of the second half"
        yield replace(whole, reason=reason)
        return
    values = np.array([curve.values[np.isin(curve.steps, common)] for curve in curves])
    stated = margin if margin is not None else spec.margin
    ours = values[: len(groups.a)]
    if stated is None:
        gain = sign * float(ours[:, common > steps / 2].mean() - ours[:, 0].mean())
        floor = _LEAST_VALIDATION if 0 <= float(ours.mean()) <= 1 else 0.0
        stated = max(_VALIDATION_SHARE * gain, floor) or np.nan
    halves = common > steps / 2
    for chosen in (halves, common > 0):
        if chosen is not halves and (chosen == halves).all():
            return
        means, at = values[:, chosen].mean(axis=1), common[chosen]
        a, b = means[: len(groups.a)], means[len(groups.a) :]
        yield replace(whole, first=int(at[0]), last=int(at[-1]), a=a, b=b, margin=stated)
