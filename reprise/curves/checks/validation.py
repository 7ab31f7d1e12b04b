"""Validation: non-inferiority of the run's second half to the reference runs."""

from __future__ import annotations

import numpy as np

from reprise.core.findings import Finding, State
from reprise.curves.reference import Reference, ValidationSpec
from reprise.curves.result import CheckResult, WindowResult, found, note, number
from reprise.curves.spread import ALPHA, BORROWED, Prior, bounds, needed_runs
from reprise.metrics import MetricTable
from reprise.metrics.table import FloatArray, IntArray

__all__ = ["validation"]

# Validation sets are small: 2 points are within two standard errors for 960 rows at 0.86.
_MATERIAL = 0.02
# Unless a margin is stated: half of what the reference runs gain, and not less than 5 points.
_MARGIN_SHARE, _LEAST_MARGIN = 0.5, 0.05
# Beyond the bound and this, a better validation is not the same experiment.
_BETTER = 0.1
# Standard deviation between correct runs without the sampling error of their answers, in accuracy,
# and the degrees of freedom that it counts for: the larger of the recorded rehearsal references.
_BORROWED, _FREEDOM = 0.022, 4.0


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
    # The level before training, or at the first point: what a frozen actor would keep.
    starts = [one.series(spec.metric).finite().values[0] for one in reference.runs]
    gain = float(sign * (matrix.mean() - np.mean(starts)))
    prior = _prior(spec, matrix, len(common))
    if prior is None and len(seeds) == 1:
        return found(
            "validation.one-reference",
            metric,
            numbers,
            (),
            notes,
            found=number(mean),
            reference=number(float(matrix[0, 0])),
        )
    limits = bounds(sign * matrix, np.array([ALPHA["validation"]]), prior)
    half = max(float(limits.half[0]), _MATERIAL)
    smallest = max(float(limits.smallest[0]), half)
    margin = spec.margin if spec.margin is not None else max(_MARGIN_SHARE * gain, _LEAST_MARGIN)
    numbers |= {
        "smallest": smallest,
        "margin": margin,
        "false_alarm_rate": ALPHA["validation"],
        "gain": gain,
    }
    if prior is not None:
        numbers |= {"prior_deviation": float(prior.deviation[0]), "borrowed_spread": BORROWED}
    loss = float(limits.mean[0]) - sign * mean
    state = State.FAILED if loss > half else State.PASSED
    reference_mean = sign * float(limits.mean[0])
    limit = sign * (float(limits.mean[0]) - half)
    deviation = float(limits.deviation[0])
    span = (int(common[0]), int(common[-1]))
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
    if -loss > max(half, _BETTER):
        return found(
            "validation.above",
            where,
            numbers,
            (window,),
            notes,
            found=number(mean),
            reference=number(reference_mean),
        )
    if smallest > margin:
        more = needed_runs(deviation, margin, ALPHA["validation"])
        fix = (
            f"record {more} reference runs or more"
            if more
            else "validate more often, on more rows, or accept a larger margin"
        )
        return found(
            "validation.cannot-resolve",
            where,
            numbers,
            (window,),
            notes,
            smallest=number(smallest),
            margin=number(margin),
            fix=fix,
        )
    text = (
        f"mean of steps {span[0]}-{span[1]} is {number(mean)}, bound {number(limit)}; "
        f"minimum detectable drop {number(smallest)}, margin {number(margin)}"
    )
    return CheckResult("validation", state, where, text, "", numbers, (window,), notes)


def _prior(spec: ValidationSpec, means: FloatArray, points: int) -> Prior | None:
    """The sampling error of `points` validations of the stated rows, with a borrowed spread.

    Only for means between 0 and 1 (accuracies): None for other scores, whose scale is unknown.
    """
    level = float(means.mean())
    if not 0 <= level <= 1:
        return None
    sampling = 0.0
    if spec.rows is not None:
        # Half an answer more of each kind: a level of 1 is not known without error.
        answers = spec.rows * spec.samples
        p = (level * answers + 0.5) / (answers + 1)
        sampling = p * (1 - p) / (answers * points)
    return Prior(np.array([np.sqrt(sampling + _BORROWED**2)]), _FREEDOM)


def _missing_points(metric: str, late: IntArray, common: IntArray) -> tuple[Finding, ...]:
    gone = np.setdiff1d(late, common)
    if not len(gone) or not len(common):
        return ()
    where = f"{metric}@{gone[0]}"
    return (note("validation.missing-points", where, steps=", ".join(map(str, gone))),)
