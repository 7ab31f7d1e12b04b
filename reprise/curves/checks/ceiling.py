"""The recipe's own expectation of the probs diff: few steps above a ceiling, and a decay."""

from __future__ import annotations

from typing import Any

import numpy as np

from reprise.core.findings import Finding, State
from reprise.curves.checks.mismatch import ENOUGH, valid_probs_diff
from reprise.curves.reference import ProbsDiffSpec
from reprise.curves.result import CheckResult, found, note, number
from reprise.metrics import MetricTable, Series

__all__ = ["ceiling"]

_RULE = "probs-diff-ceiling"
# This many steps above the ceiling up to the end of the run are not an accident.
_TAIL = 5
_DECAY = 0.8


def ceiling(table: MetricTable, spec: ProbsDiffSpec, limit: float, expected: int) -> CheckResult:
    """Whether few of `expected` steps are above `limit`, not to the end, and (if stated) it decays.

    An unfinished run fails only if more steps cannot fix it: too many steps above the limit.
    """
    series = valid_probs_diff(table, spec)
    if not len(series):
        return found("probs-diff-ceiling.no-values", spec.metric, {}, metric=spec.metric)
    # Steps that verl marked invalid were trained all the same.
    logged = len(table.series(spec.metric))
    whole = logged >= 0.98 * expected and len(series) >= ENOUGH * expected
    numbers, problems = _excess(series, spec, limit, expected, whole)
    notes = _spikes(series, limit)
    above = f"{numbers['steps_above']} of {expected} steps above {number(limit)}"
    ratio = _decay(series) if spec.decay else 0.0
    if spec.decay:
        numbers["decay_ratio"] = ratio
        if whole and ratio >= 1:
            problems.append("the last quarter is the highest: no decay")
    if problems:
        return found(
            "probs-diff-ceiling.exceeded",
            f"{spec.metric}@{numbers['first_above']}",
            numbers,
            (),
            notes,
            problems="; ".join(problems),
        )
    if not whole:
        return found(
            "probs-diff-ceiling.unfinished",
            spec.metric,
            numbers,
            (),
            notes,
            above=above,
            valid=len(series),
            expected=expected,
        )
    if not ratio <= _DECAY:
        return found(
            "probs-diff-ceiling.no-decay",
            spec.metric,
            numbers,
            (),
            notes,
            above=above,
            ratio=number(ratio),
            limit=_DECAY,
        )
    text = f"{above}" + (f"; decays to {ratio:.2f} of its highest quarter" if spec.decay else "")
    return CheckResult(_RULE, State.PASSED, spec.metric, text, "", numbers, (), notes)


def _excess(
    series: Series, spec: ProbsDiffSpec, limit: float, expected: int, whole: bool
) -> tuple[dict[str, Any], list[str]]:
    """The numbers of the steps above `limit`, and the problems with them."""
    above = series.values > limit
    below = np.flatnonzero(~above)
    tail = len(above) - (int(below[-1]) + 1 if len(below) else 0)
    count = int(above.sum())
    numbers: dict[str, Any] = {
        "ceiling": limit,
        "steps_above": count,
        "share_above": count / expected,
        "share_allowed": spec.share_above,
        "tail_above": tail,
        "first_above": int(series.steps[above][0]) if count else int(series.steps[0]),
    }
    problems = []
    if count > spec.share_above * expected:
        share = f"at most {spec.share_above:.0%} expected"
        problems.append(f"{count} of {expected} steps above {number(limit)}, {share}")
    if whole and tail >= _TAIL:
        start = int(series.steps[-tail])
        slope = float(np.polyfit(series.steps[-tail:], series.values[-tail:], 1)[0])
        numbers |= {"first_above": start, "tail_start": start, "tail_slope": slope}
        lasting = f"above {number(limit)} at every step from {start} on"
        problems.append(f"{lasting}, slope {slope:+.2g} a step")
    return numbers, problems


def _decay(series: Series) -> float:
    """Median of the last quarter over the highest median of a quarter; NaN under 8 points."""
    if len(series) < 8:
        return float("nan")
    quarters = [float(np.median(part)) for part in np.array_split(series.values, 4)]
    return quarters[-1] / max(quarters)


def _spikes(series: Series, limit: float) -> tuple[Finding, ...]:
    """Single steps above the ceiling: worth a note, not evidence of a mismatch."""
    above = np.flatnonzero(series.values > limit)
    lone = [i for i in above if not {i - 1, i + 1} & set(above.tolist())]
    if not lone or len(lone) > 3:
        return ()
    return tuple(
        note(
            "probs-diff-ceiling.spike",
            f"{series.metric}@{series.steps[i]}",
            value=number(float(series.values[i])),
        )
        for i in lone
    )
