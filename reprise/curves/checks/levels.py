"""The level of a positive metric against the reference runs, on a log scale.

Medians over windows and over the whole run, so that a lone spike does not decide; the log scale,
because such metrics move by factors. The spread between runs is the references' own, mixed with
what other references showed (spread.BORROWED).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprise.core.findings import State
from reprise.curves.checks.compared import split
from reprise.curves.result import WindowResult
from reprise.curves.spread import Bounds, Prior, bounds, split_alpha
from reprise.metrics import Series
from reprise.metrics.table import BoolArray, FloatArray

__all__ = ["ENOUGH", "Level", "Levels", "compare_levels", "log_medians"]

WINDOWS = 3
# A median over half of a window still shows its level.
ENOUGH = 0.5
# Two runs give bounds beyond the range of a float; e to the 50th is as good as no bound.
_MOST = 50.0


@dataclass(frozen=True, slots=True)
class Level:
    """How a metric's level is judged.

    `floor`: values below it count as it (rounding). `material`: a smaller factor is never
    evidence. `resolution`: the factor that must be detectable (90 % power), or the check could
    not have failed. `window`, `whole`: standard deviations of log medians between correct runs
    that other references showed, and `freedom`, the degrees of freedom that they count for.
    """

    floor: float
    material: float
    resolution: float
    window: float
    whole: float
    freedom: float = 8.0


@dataclass(frozen=True, slots=True)
class Levels:
    """The comparison: arrays of shape (W + 1,), windows and then the whole run.

    `ratio`: log of the run over the reference runs. `half`: the bound of |ratio|. `smallest`:
    the log factor that is detected with 90 % power.
    """

    windows: tuple[tuple[int, int], ...]
    ours: FloatArray
    ratio: FloatArray
    half: FloatArray
    smallest: FloatArray
    limits: Bounds

    @property
    def factors(self) -> list[float]:
        """The run over the reference runs, per column."""
        return [float(value) for value in np.exp(np.clip(self.ratio, -_MOST, _MOST))]

    @property
    def detectable(self) -> float:
        """The factor over the whole run that is detected with 90 % power."""
        return float(np.exp(min(float(self.smallest.min()), _MOST)))

    def results(
        self, metric: str, beyond: BoolArray, sign: float = 1.0
    ) -> tuple[WindowResult, ...]:
        """One WindowResult a column; `beyond` marks those past the bound, `sign` its side."""
        reference = self.limits.mean
        return tuple(
            WindowResult(
                metric,
                *window,
                float(np.exp(self.ours[i])),
                float(np.exp(reference[i])),
                float(np.exp(reference[i]) * self.limits.deviation[i]),
                float(np.exp(reference[i] + sign * min(self.half[i], _MOST))),
                float(np.exp(reference[i]) * np.expm1(min(self.smallest[i], _MOST))),
                State.FAILED if beyond[i] else State.PASSED,
            )
            for i, window in enumerate(self.windows)
        )


def compare_levels(
    run: Series, seeds: list[Series], steps: int, level: Level, alpha: float
) -> Levels | None:
    """Compare the level of `run` with that of `seeds`; None where one has too few values.

    `alpha` is the one-sided probability of failing a correct run, over all columns.
    """
    windows = split(WINDOWS, steps)
    windows.append((1, steps))
    ours = log_medians(run, windows, level.floor)
    theirs = np.array([log_medians(series, windows, level.floor) for series in seeds])
    if not np.isfinite(ours).all() or not np.isfinite(theirs).all():
        return None
    count = len(windows) - 1
    spread = np.array([*[level.window] * count, level.whole])
    alphas = split_alpha(alpha, count)
    limits = bounds(theirs, alphas, Prior(spread, level.freedom), pooled=count)
    half = np.maximum(limits.half, np.log(level.material))
    smallest = np.maximum(limits.smallest, half)
    return Levels(tuple(windows), ours, ours - limits.mean, half, smallest, limits)


def log_medians(series: Series, windows: list[tuple[int, int]], floor: float) -> FloatArray:
    """Log of each window's median, shape (W,); NaN where under half of the steps are valid."""
    medians = np.full(len(windows), np.nan)
    for i, (first, last) in enumerate(windows):
        begin, end = np.searchsorted(series.steps, [first, last + 1])
        part = np.sort(series.values[begin:end])
        if len(part) >= max(1, ENOUGH * (last - first + 1)):
            middle = (part[(len(part) - 1) // 2] + part[len(part) // 2]) / 2
            medians[i] = np.log(max(float(middle), floor))
    return medians
