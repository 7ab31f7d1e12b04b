"""Validation: non-inferiority of the run's second half to the reference runs."""

from __future__ import annotations

import numpy as np

from reprise.core.findings import Finding, State
from reprise.curves.reference import Reference, ValidationSpec
from reprise.curves.result import CheckResult, WindowResult, found, note, number
from reprise.curves.spread import ALPHA, bounds
from reprise.metrics import MetricTable
from reprise.metrics.table import IntArray

__all__ = ["validation"]

# Validation sets are small: 2 points are within two standard errors for 960 rows at 0.86.
_MATERIAL = 0.02


def validation(
    table: MetricTable, reference: Reference, spec: ValidationSpec, metric: str, steps: int
) -> CheckResult:
    """Validation over the second half of steps 1..steps, at the points that all runs have."""
    run = table.series(metric).finite().between(1, steps)
    seeds = [one.series(spec.metric).finite().between(1, steps) for one in reference.runs]
    planned = seeds[0].steps
    for series in seeds:
        planned = np.intersect1d(planned, series.steps)
    late = planned[planned > steps / 2]
    common = np.intersect1d(late, run.steps)
    notes = _missing_points(metric, late, common)
    numbers: dict[str, object] = {"points": [int(step) for step in common]}
    if not len(common) or len(common) < len(late) / 2:
        return found(
            "validation.few-points",
            metric,
            numbers,
            (),
            notes,
            found=len(common),
            expected=len(late),
        )
    sign = 1.0 if spec.direction == "up" else -1.0
    mean = float(run.values[np.isin(run.steps, common)].mean())
    matrix = np.array([[s.values[np.isin(s.steps, common)].mean()] for s in seeds])
    span = (int(common[0]), int(common[-1]))
    if len(seeds) == 1:
        one = float(matrix[0, 0])
        numbers |= {"run": mean, "reference": one}
        return found(
            "validation.one-reference",
            metric,
            numbers,
            (),
            notes,
            found=number(mean),
            reference=number(one),
        )
    limits = bounds(sign * matrix, ALPHA["validation"])
    loss = float(limits.mean[0]) - sign * mean
    state = State.FAILED if loss > max(limits.half[0], _MATERIAL) else State.PASSED
    reference_mean = sign * float(limits.mean[0])
    limit = sign * float(limits.mean[0] - limits.half[0])
    smallest = float(limits.smallest[0])
    deviation = float(limits.deviation[0])
    window = WindowResult(metric, *span, mean, reference_mean, deviation, limit, smallest, state)
    where = f"{metric}@{span[0]}-{span[1]}"
    if state is State.FAILED:
        return found(
            "validation.below",
            where,
            numbers,
            (window,),
            notes,
            first=span[0],
            last=span[1],
            found=number(mean),
            bound=number(limit),
        )
    text = f"mean of steps {span[0]}-{span[1]} is {number(mean)}, bound {number(limit)}"
    return CheckResult("validation", state, where, text, "", numbers, (window,), notes)


def _missing_points(metric: str, late: IntArray, common: IntArray) -> tuple[Finding, ...]:
    gone = np.setdiff1d(late, common)
    if not len(gone) or not len(common):
        return ()
    where = f"{metric}@{gone[0]}"
    return (note("validation.missing-points", where, steps=", ".join(map(str, gone))),)
