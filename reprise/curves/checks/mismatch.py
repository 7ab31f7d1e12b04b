"""Rollout against training: probability difference and KL."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reprise.core.findings import Finding, State
from reprise.curves.checks.levels import ENOUGH, Level, compare_levels
from reprise.curves.reference import ProbsDiffSpec
from reprise.curves.result import CheckResult, found, note
from reprise.curves.spread import ALPHA, BORROWED
from reprise.metrics import MetricTable, Series

__all__ = ["ENOUGH", "against_seeds", "valid_probs_diff"]

# Below 1e-6 both metrics are rounding of float32 sums, and k3 may even come out negative. Seeds
# that agree closely would flag another machine: a CPU's probs diff is up to 1.7 times a GPU's. The
# borrowed spreads are the largest of the three recorded rehearsal references.
_LEVELS = {
    "probs-diff": Level(1e-6, 1.8, 3.0, window=0.17, whole=0.11),
    "kl": Level(1e-6, 1.5, 10.0, window=0.36, whole=0.20),
}


def valid_probs_diff(table: MetricTable, spec: ProbsDiffSpec) -> Series:
    """The probs diff at steps where verl marked it valid (`..._valid` absent or not 0)."""
    series = table.series(spec.metric).finite()
    flags = table.series(spec.valid)
    invalid = flags.steps[flags.values == 0]
    return series.keep(~np.isin(series.steps, invalid))


def against_seeds(
    rule: str, run: Series, seeds: list[Series], steps: int, factor: float | None = None
) -> CheckResult:
    """The level of `run` against that of the reference runs, from above.

    `rule` is "probs-diff" or "kl". Where the references' spread could hide a factor of the
    level's resolution, the check could not have failed, and is unknown. A stated `factor` takes
    the resolution's place: it must be detectable, and outside the run's own error.
    """
    metric, level = run.metric, _LEVELS[rule]
    if factor is not None:
        level = replace(level, material=min(level.material, factor**0.5), resolution=factor)
    levels = compare_levels(run, seeds, steps, level, ALPHA[rule])
    if levels is None:
        held = len(run.between(1, steps))
        result = found("probs-diff.few-values", metric, {}, held=held, steps=steps)
        return replace(result, rule=rule)
    above = levels.ratio > levels.half
    results = levels.results(metric, above)
    factors = levels.factors
    numbers = {
        "factors": factors,
        "detectable_factor": levels.detectable,
        "freedom": [float(value) for value in levels.limits.freedom],
        "false_alarm_rate": ALPHA[rule],
        "borrowed_spread": BORROWED,
    }
    notes = _too_small(rule, metric, factors)
    if above.any():
        worst = int(np.argmax(np.where(above, levels.ratio, -np.inf)))
        first, last = levels.windows[worst]
        result = found(
            "probs-diff.above",
            f"{metric}@{first}-{last}",
            numbers,
            results,
            notes,
            factor=factors[worst],
            bound=float(np.exp(levels.half[worst])),
        )
        return replace(result, rule=rule)
    if levels.detectable > level.resolution:
        result = found(
            "probs-diff.cannot-resolve",
            metric,
            numbers,
            results,
            notes,
            factor=levels.detectable,
            needed=level.resolution,
        )
        return replace(result, rule=rule)
    highest = float(np.exp(levels.ratio[-1] + levels.limits.half[-1]))
    if factor is not None and highest > factor:
        known = {"found": factors[-1], "highest": highest, "factor": factor}
        result = found("probs-diff.not-excluded", metric, numbers, results, notes, **known)
        return replace(result, rule=rule)
    shown = ", ".join(f"{value:.2f}" for value in factors)
    text = f"{shown} times the reference runs' values; detects a factor of {levels.detectable:.3g}"
    return CheckResult(rule, State.PASSED, metric, text, "", numbers, results, notes)


def _too_small(rule: str, metric: str, factors: list[float]) -> tuple[Finding, ...]:
    if max(factors) > 0.2:
        return ()
    return (replace(note("probs-diff.far-below", metric), rule=rule),)
