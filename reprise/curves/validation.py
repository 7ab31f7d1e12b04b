"""Validation: is the run's second half not inferior to that of the reference runs?"""

from __future__ import annotations

import numpy as np

from reprise.core.findings import Finding, State
from reprise.curves.reference import Reference, ValidationSpec
from reprise.curves.result import CheckResult, WindowResult, note, number
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
        text = f"{len(common)} of {len(late)} validation points of the second half are there"
        fix = "keep trainer.test_freq of the recipe and let the run finish"
        return CheckResult("validation", State.UNKNOWN, metric, text, fix, numbers, notes=notes)
    sign = 1.0 if spec.direction == "up" else -1.0
    mean = float(run.values[np.isin(run.steps, common)].mean())
    matrix = np.array([[s.values[np.isin(s.steps, common)].mean()] for s in seeds])
    span = (int(common[0]), int(common[-1]))
    if len(seeds) == 1:
        text = f"{number(mean)} against {number(float(matrix[0, 0]))} of the one reference run"
        fix = "record at least 5 more reference runs with other seeds (reprise baseline)"
        numbers |= {"run": mean, "reference": float(matrix[0, 0])}
        return CheckResult("validation", State.UNKNOWN, metric, text, fix, numbers, notes=notes)
    limits = bounds(sign * matrix, ALPHA["validation"])
    loss = float(limits.mean[0]) - sign * mean
    state = State.FAILED if loss > max(limits.half[0], _MATERIAL) else State.PASSED
    reference_mean = sign * float(limits.mean[0])
    limit = sign * float(limits.mean[0] - limits.half[0])
    smallest = float(limits.smallest[0])
    deviation = float(limits.deviation[0])
    window = WindowResult(metric, *span, mean, reference_mean, deviation, limit, smallest, state)
    text = f"mean of steps {span[0]}-{span[1]} is {number(mean)}, bound {number(limit)}"
    fix = "" if state is State.PASSED else "compare data, prompts and sampling of the validation"
    where = f"{metric}@{span[0]}-{span[1]}"
    return CheckResult("validation", state, where, text, fix, numbers, (window,), notes)


def _missing_points(metric: str, late: IntArray, common: IntArray) -> tuple[Finding, ...]:
    gone = np.setdiff1d(late, common)
    if not len(gone) or not len(common):
        return ()
    where = f"{metric}@{gone[0]}"
    return (note("validation", where, f"no validation at {', '.join(map(str, gone))}"),)
