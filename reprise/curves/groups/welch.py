"""The difference of two groups' means, its interval between seeds, and what could be seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from reprise.curves.spread import detected_shift
from reprise.metrics.table import FloatArray

__all__ = ["ENOUGH", "Difference", "difference", "needed_seeds"]

ENOUGH = 3
"""Runs of a side from which on its spread is its own."""
_MOST_SEEDS = 64


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of group b minus mean of group a, in the unit of the values.

    `half`: half the width of the two-sided interval. `smallest`: the true difference that is
    detected with 90 % power. `spread`: standard deviation of one run, pooled. All three are NaN
    where the values show no spread: one run a side, or equal values.
    """

    value: float
    half: float
    smallest: float
    spread: float

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.value + self.half


def difference(a: FloatArray, b: FloatArray, alpha: float) -> Difference:
    """The interval of mean(b) - mean(a) at the two-sided level `alpha`; shapes (k,) and (m,).

    Welch's t interval, which lets the spreads differ, where both sides have ENOUGH runs. Else both
    sides are taken to have one spread (Student's t with pooled variance): two runs say nothing of
    a spread of their own, and one run has none.
    """
    value = float(b.mean() - a.mean())
    sides = [(float(x.var(ddof=1)) if len(x) > 1 else 0.0, len(x)) for x in (a, b)]
    free = len(a) + len(b) - 2
    pooled = sum(variance * (runs - 1) for variance, runs in sides) / free if free else 0.0
    squares, freedom = pooled * (1 / len(a) + 1 / len(b)), float(free)
    # Values that agree to the last bits of a float have no spread that means anything.
    scale = max(float(np.abs(a).max()), float(np.abs(b).max()))
    if not np.sqrt(pooled) > 1e-12 * scale:
        return Difference(value, np.nan, np.nan, np.nan)
    if min(len(a), len(b)) >= ENOUGH:
        terms = [variance / runs for variance, runs in sides]
        squares = sum(terms)
        below = sum(t**2 / (runs - 1) for t, (_, runs) in zip(terms, sides, strict=True))
        freedom = squares**2 / below
    error = float(np.sqrt(squares))
    critical = -float(special.stdtrit(freedom, alpha / 2))
    smallest = detected_shift(critical, freedom) * error
    return Difference(value, critical * error, smallest, float(np.sqrt(pooled)))


def needed_seeds(spread: float, effect: float, alpha: float) -> int | None:
    """Seeds a side that detect `effect` with 90 % power at `alpha`; None: more than 64.

    `spread`: standard deviation of one run, taken to be the same on both sides.
    """
    for runs in range(2, _MOST_SEEDS + 1):
        freedom = 2.0 * (runs - 1)
        critical = -float(special.stdtrit(freedom, alpha / 2))
        if detected_shift(critical, freedom) * spread * np.sqrt(2 / runs) <= abs(effect):
            return runs
    return None
