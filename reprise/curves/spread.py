"""How far a new run may be from k reference runs: Student prediction bounds by windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from reprise.metrics import Series
from reprise.metrics.table import FloatArray

__all__ = ["ALPHA", "POWER", "Bounds", "bounds", "coverage", "fill", "needed_runs", "step_noise"]

# Probability per check of failing a correct run; together six in a thousand.
ALPHA = {"reward": 0.0035, "validation": 0.0015, "probs-diff": 0.0005, "kl": 0.0005}
# The minimum detectable drop is detected with this probability.
POWER = 0.9


@dataclass(frozen=True, slots=True)
class Bounds:
    """Per window (arrays of shape (W,)): what a new run of the same process stays above.

    `mean` of the reference runs, `deviation` used for one run, `half` = distance from the mean
    to the one-sided bound, `smallest` = drop that is detected with probability POWER.
    `freedom` = degrees of freedom behind `deviation`, `runs` = k.
    """

    mean: FloatArray
    deviation: FloatArray
    half: FloatArray
    smallest: FloatArray
    freedom: float
    runs: int


def bounds(seeds: FloatArray, alpha: float) -> Bounds:
    """One-sided prediction bounds for one new run from `seeds`, shape (k, W), k >= 2.

    Student's prediction interval for one further observation, Bonferroni over the W windows.
    The deviation is the larger of the window's own and the pooled one, so that a window in which
    k runs agree by luck does not fail correct runs; its degrees of freedom are Satterthwaite's for
    correlated windows. benchmarks/curves measures that the error rate stays under `alpha`.
    """
    runs, windows = seeds.shape
    if runs < 2:
        raise ValueError(f"a spread needs at least 2 runs, got {runs}")
    mean = seeds.mean(axis=0)
    centred = seeds - mean
    covariance = centred.T @ centred / (runs - 1)
    variance = np.diag(covariance)
    squares = float((covariance**2).sum())
    freedom = (runs - 1) * float(variance.sum()) ** 2 / squares if squares > 0 else runs - 1.0
    deviation = np.sqrt(np.maximum(variance, variance.mean()))
    critical = float(stats.t.isf(alpha / windows, freedom))
    error = deviation * np.sqrt(1 + 1 / runs)
    return Bounds(
        mean, deviation, critical * error, _shift(critical, freedom) * error, freedom, runs
    )


def _shift(critical: float, freedom: float) -> float:
    """Shift, in standard errors, after which a t statistic passes `critical` with POWER."""

    def missing(shift: float) -> float:
        return float(stats.nct.sf(critical, freedom, shift)) - POWER

    return float(optimize.brentq(missing, 0.0, 10 * critical + 10))


def needed_runs(deviation: float, margin: float, windows: int, alpha: float) -> int | None:
    """Reference runs needed to detect a drop of `margin`; None when 40 are too few."""
    for runs in range(3, 41):
        critical = float(stats.t.isf(alpha / windows, runs - 1))
        if _shift(critical, runs - 1) * deviation * np.sqrt(1 + 1 / runs) <= margin:
            return runs
    return None


def fill(series: Series, first: int, last: int) -> Series:
    """`series` inside [first, last]; a sampled history is interpolated between its own ends."""
    series = series.finite()
    if series.looks_sampled:
        steps = np.arange(series.steps[0], series.steps[-1] + 1)
        values = np.interp(steps, series.steps, series.values)
        series = Series(series.metric, steps, values, np.full(len(steps), np.nan))
    return series.between(first, last)


def coverage(series: Series, windows: Sequence[tuple[int, int]]) -> FloatArray:
    """Share of each window's steps that `series` holds, shape (W,)."""
    shares = [len(series.between(a, b)) / (b - a + 1) for a, b in windows]
    return np.array(shares, dtype=np.float64)


def step_noise(values: FloatArray) -> float:
    """Standard deviation of one step around a slow curve, from successive differences (n >= 3)."""
    return float(np.sqrt(np.mean(np.diff(values) ** 2) / 2)) if len(values) >= 3 else float("nan")
