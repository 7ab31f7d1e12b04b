"""Whether the change from group A to group B is an improvement, and what could not be seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprise.core.findings import Finding, State
from reprise.curves.groups.columns import Column, Member, columns
from reprise.curves.groups.result import Answer, Compared, Comparison
from reprise.curves.groups.welch import difference, needed_seeds
from reprise.curves.reference import Metrics
from reprise.curves.result import CheckResult, found, note, number, outcome_of

__all__ = ["ALPHA", "GroupOptions", "compare_groups"]

# Of the columns that decide together, and of the others together: one comparison in twenty shows
# a difference where there is none.
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """`margin`: the smallest difference of reward and validation that counts; None: not stated.

    `unlike`: metrics that are not measured alike on both sides, and why; they decide nothing.
    """

    margin: float | None = None
    unlike: tuple[tuple[str, str], ...] = ()


def compare_groups(
    a: Sequence[Member],
    b: Sequence[Member],
    metrics: Metrics,
    steps: int,
    options: GroupOptions | None = None,
) -> Comparison:
    """Compare two groups of at least one run each over the steps 1..`steps`.

    PASS: reward or validation is better and neither lost its margin. FAIL: one of them is worse,
    or an improvement of the stated margin is excluded. INCONCLUSIVE: the runs cannot show it.
    Runs are taken as independent, and their means as normally distributed between seeds.
    """
    options = options or GroupOptions()
    made = list(columns(a, b, metrics, steps, options.margin))
    counts = {kind: sum(column.decides is kind for column in made) for kind in (True, False)}
    unlike = dict(options.unlike)
    judged = [
        _judge(column, ALPHA / counts[column.decides], options.margin, unlike.get(column.metric))
        for column in made
    ]
    checks = _checks(judged, options.margin)
    checks[0] = replace(checks[0], notes=tuple(_side_effects(judged)))
    return Comparison(
        outcome_of(checks),
        len(a),
        len(b),
        steps,
        100 * (1 - ALPHA / max(counts[True], 1)),
        tuple(one.shown for one in judged),
        tuple(checks),
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    """A column, what is shown of it, and the interval of the gain: positive is better."""

    column: Column
    shown: Compared
    low: float
    high: float
    seeds: int | None = None

    @property
    def where(self) -> str:
        return f"{self.shown.metric}@{self.shown.first}-{self.shown.last}"

    @property
    def open(self) -> bool:
        """Whether a loss of the margin is not excluded."""
        return not (self.low > 0 or self.low > -self.column.margin)


def _judge(column: Column, alpha: float, margin: float | None, unlike: str | None) -> _Judged:
    lacking = [
        f"{int(np.isnan(side).sum())} of {len(side)} runs of {name} have too few values"
        for name, side in (("A", column.a), ("B", column.b))
        if np.isnan(side).any()
    ]
    reason = column.reason or "; ".join(lacking)
    means = column.a.mean(), column.b.mean()
    found_ = difference(column.a, column.b, alpha)
    if not reason and math.isnan(found_.half):
        alone = len(column.a) == len(column.b) == 1
        reason = "one run a side shows no spread" if alone else "equal values: no spread"
    low, high = found_.low, found_.high
    gain = (low, high) if column.better >= 0 else (-high, -low)
    decides = column.decides and unlike is None
    answer: Answer = "unknown"
    if not reason:
        answer = _answer(column, *gain, margin)
    value, smallest = found_.value, found_.smallest
    if column.ratio:
        # Two runs a side may give bounds beyond the range of a float.
        value, low, high, smallest = np.exp(np.clip([value, low, high, smallest], -50, 50))
        means = np.exp(means[0]), np.exp(means[1])
    shown = Compared(
        *(column.metric, column.first, column.last, float(means[0]), float(means[1])),
        *(float(value), float(low), float(high), float(smallest)),
        *(column.ratio, decides, answer, reason or unlike or ""),
    )
    effect = margin if margin is not None else found_.value
    seeds = needed_seeds(found_.spread, effect, alpha) if answer == "inconclusive" else None
    return _Judged(column, shown, *gain, seeds)


def _answer(column: Column, low: float, high: float, margin: float | None) -> Answer:
    """What the interval low..high of the gain says; `margin` holds for columns that decide."""
    if not column.better:
        return "higher" if low > 0 else "lower" if high < 0 else "inconclusive"
    counts = margin if margin is not None and column.decides else 0.0
    if -counts < low and high < counts:
        return "no difference"
    if low > 0:
        return "better"
    if high < 0:
        return "worse"
    return "no improvement" if high < counts else "inconclusive"


def _checks(judged: Sequence[_Judged], margin: float | None) -> list[CheckResult]:
    """At least one check of the rule `improvement`: what decided, or why nothing did."""
    deciding = [one for one in judged if one.shown.decides]
    if not deciding:
        return [found("improvement.unlike", "reward and validation", {})]
    first = deciding[0]
    if len(first.column.a) == len(first.column.b) == 1:
        known = {"metric": first.shown.metric, "a": number(first.shown.a)}
        return [found("improvement.one-run", "A and B", {}, **known, b=number(first.shown.b))]
    if worse := [one for one in deciding if one.shown.answer == "worse"]:
        return [found("improvement.worse", worse[0].where, {}, found=_listed(worse))]
    better = [one for one in deciding if one.shown.answer == "better"]
    if not better and margin is not None and all(one.high < margin for one in deciding):
        known = {"margin": number(margin), "found": _listed(deciding)}
        return [found("improvement.excluded", first.where, {}, **known)]
    return _open(deciding, better, margin)


def _open(
    deciding: Sequence[_Judged], better: Sequence[_Judged], margin: float | None
) -> list[CheckResult]:
    """What prevents a PASS; else the PASS."""
    checks = []
    lacking = {
        one.shown.metric: one.shown.reason for one in deciding if one.shown.answer == "unknown"
    }
    for metric, reason in lacking.items():
        checks.append(found("improvement.unknown", metric, {}, reason=reason, metric=metric))
    seen = [one for one in deciding if one.shown.metric not in lacking]
    if better and (lost := [one for one in seen if one.open]):
        losses = [
            f"{one.where} {number(-one.low)} (margin {number(one.column.margin)})" for one in lost
        ]
        shown = "; ".join(losses)
        checks.append(found("improvement.loss-possible", lost[0].where, {}, losses=shown))
    left = [one for one in seen if one.shown.answer == "inconclusive"]
    if left and not better:
        first = left[0]
        effect = abs(first.shown.difference) if margin is None else margin
        seeds = f"about {first.seeds}" if first.seeds else "more than 64"
        known = {"found": _listed(left), "seeds": seeds, "effect": number(effect)}
        checks.append(found("improvement.not-seen", first.where, {}, **known))
    if checks:
        return checks
    text = f"B is better than A: {_listed(better)}; no loss of the margin elsewhere"
    return [CheckResult("improvement", State.PASSED, better[0].where, text, "", {})]


def _listed(judged: Sequence[_Judged]) -> str:
    """The differences, as a list in words."""
    return "; ".join(f"{one.where} {one.shown.difference:+.4g}" for one in judged)


def _side_effects(judged: Sequence[_Judged]) -> Iterator[Finding]:
    """What else differs: a note each, because it says nothing of better and worse."""
    for one in judged:
        shown = one.shown
        if not one.column.decides and shown.answer in ("worse", "higher", "lower", "better"):
            changed = f"{shown.difference:.3g} times" if shown.ratio else f"{shown.difference:+.4g}"
            yield note("improvement.side-effect", one.where, changed=changed)
