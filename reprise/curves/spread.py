"""How far a new run may be from k reference runs: Student prediction bounds by columns.

A column is one number a run: the mean of a window, of the whole run, or a difference of windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize, special, stats

from reprise.metrics import Series
from reprise.metrics.table import FloatArray

__all__ = [
    "ALPHA",
    "BORROWED",
    "POWER",
    "Bounds",
    "Prior",
    "bounds",
    "coverage",
    "detected_shift",
    "fill",
    "needed_runs",
    "split_alpha",
    "step_noise",
]

# Probability per check of failing a correct run; together one in a hundred (guards: all of them).
ALPHA = {
    "reward": 0.004,
    "validation": 0.0015,
    "probs-diff": 0.001,
    "kl": 0.001,
    "guards": 0.002,
}
# The minimum detectable drop is detected with this probability.
POWER = 0.9
BORROWED = "15 recorded rehearsal seeds (5 on a CPU, 10 on a GPU)"
"""Where the borrowed spreads between correct runs were measured (recipes/rehearsal)."""
# The share of a check's alpha that its whole-run column has; the windows share the rest.
_WHOLE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Prior:
    """A spread between correct runs that other references showed: one a column.

    `deviation` in the columns' unit, shape (columns,); `freedom`: how many degrees of freedom it
    counts for.
    """

    deviation: FloatArray
    freedom: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """Per column (arrays of shape (columns,)): what a new run of the same process stays above.

    `mean` of the reference runs, `deviation` used for one run, `half` = distance from the mean
    to the one-sided bound, `smallest` = drop that is detected with probability POWER.
    `freedom` = degrees of freedom behind `deviation`, `runs` = k.
    """

    mean: FloatArray
    deviation: FloatArray
    half: FloatArray
    smallest: FloatArray
    freedom: FloatArray
    runs: int


def split_alpha(alpha: float, windows: int, others: int = 1) -> FloatArray:
    """`alpha` over `windows` window columns and `others` whole-run ones, in that order."""
    if windows == 0:
        return np.full(others, alpha / others)
    shared = np.full(windows, alpha * (1 - _WHOLE_SHARE) / windows)
    return np.concatenate([shared, np.full(others, alpha * _WHOLE_SHARE / others)])


def bounds(
    seeds: FloatArray, alpha: FloatArray, prior: Prior | None = None, pooled: int = 0
) -> Bounds:
    """One-sided prediction bounds for one new run from `seeds`, shape (k, columns).

    Student's prediction interval for one further observation at level `alpha`, shape (columns,).
    The first `pooled` columns are windows of one curve: their deviation is the larger of the
    window's own and the pooled one, so that a window in which k runs agree by luck does not fail
    correct runs; its degrees of freedom are Satterthwaite's for correlated windows. A `prior` is
    mixed in by degrees of freedom; one run (k = 1) has no spread of its own and needs it, or
    raises ValueError. benchmarks/curves measures that the error rate stays under `alpha`.
    """
    runs, columns = seeds.shape
    if runs < 2 and prior is None:
        raise ValueError(f"a spread needs at least 2 runs, got {runs}")
    mean = seeds.mean(axis=0)
    variance, freedom = np.zeros(columns), np.zeros(columns)
    if runs > 1:
        variance, freedom = _own(seeds - mean, pooled)
    if prior is not None:
        total = prior.freedom + freedom
        variance = (prior.freedom * prior.deviation**2 + freedom * variance) / total
        freedom = total
    deviation = np.sqrt(variance)
    critical = np.asarray(-special.stdtrit(freedom, alpha), dtype=np.float64)
    error = deviation * np.sqrt(1 + 1 / runs)
    pairs = zip(critical, freedom, strict=True)
    shift = np.array([detected_shift(float(c), float(f)) for c, f in pairs])
    return Bounds(mean, deviation, critical * error, shift * error, freedom, runs)


def _own(centred: FloatArray, pooled: int) -> tuple[FloatArray, FloatArray]:
    """Variance and degrees of freedom of each column, from deviations of shape (k, columns)."""
    runs = len(centred)
    variance = (centred**2).sum(axis=0) / (runs - 1)
    freedom = np.full(len(variance), runs - 1.0)
    if pooled:
        windows = centred[:, :pooled]
        squares = float(((windows.T @ windows / (runs - 1)) ** 2).sum())
        if squares > 0:
            freedom[:pooled] *= float(variance[:pooled].sum()) ** 2 / squares
        variance[:pooled] = np.maximum(variance[:pooled], variance[:pooled].mean())
    return variance, freedom


@lru_cache(maxsize=4096)
def detected_shift(critical: float, freedom: float) -> float:
    """Shift, in standard errors, after which a t statistic passes `critical` with POWER."""

    def missing(shift: float) -> float:
        below = float(special.nctdtr(freedom, shift, critical))
        # The fast function gives NaN far from the origin, where the slow one still answers.
        above = 1 - below if np.isfinite(below) else float(stats.nct.sf(critical, freedom, shift))
        return above - POWER

    # With one degree of freedom, the fewest there are, it is 1.65 times the critical value.
    return float(optimize.brentq(missing, 0.0, 2 * critical + 10))


def needed_runs(deviation: float, margin: float, alpha: float, each: float = 1.0) -> int | None:
    """Reference runs needed to detect a drop of `margin` at level `alpha`; None above 40.

    `each`: degrees of freedom that one further run adds (more than 1 where windows are pooled).
    """
    for runs in range(3, 41):
        freedom = each * (runs - 1)
        critical = -float(special.stdtrit(freedom, alpha))
        if detected_shift(critical, freedom) * deviation * np.sqrt(1 + 1 / runs) <= margin:
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
