"""The reward of a run beside that of the reference runs, in the columns that are compared.

The columns: the mean of each window, the mean of the whole run (it sees a run that learns at
half the speed), and the last window against the first (a run that stops learning).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reprise.curves.reference import Reference, RewardSpec
from reprise.curves.result import CheckResult, found
from reprise.curves.spread import ALPHA, Bounds, Prior, bounds, coverage, fill, step_noise
from reprise.metrics import MetricTable, Series
from reprise.metrics.table import FloatArray

__all__ = [
    "OWN_SPREAD",
    "WINDOW_SHARE",
    "Compared",
    "compare",
    "limits_of",
    "split",
    "without_reward",
]

# A shortfall under this share of the reference's gain is never evidence, however tight the seeds;
# of one or two reference runs, one under a third.
_MATERIAL_SHARE = 0.05
_GROSS_SHARE = 1 / 3
# Unless a margin is stated: a run that loses this share of the reference's gain must be detected.
_MARGIN_SHARE = 0.6
# Standard deviation between correct runs as a share of the gain: the largest of the recorded
# rehearsal references, for a window and for the whole run. Mixed in below eight reference runs,
# with fewer degrees of freedom once three do.
_BORROWED_WINDOW, _BORROWED_WHOLE = 0.06, 0.03
_BORROWED_FREEDOM, _MIXED_FREEDOM = 12.0, 6.0
_BORROW_BELOW = 8
OWN_SPREAD = 3
"""Below so many reference runs a PASS on a borrowed spread needs a margin that the user states."""
WINDOW_SHARE, WHOLE_SHARE, _TREND_SHARE = 0.4, 0.45, 0.15
"""Shares of the reward's alpha: all windows, the whole run, the trend."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Reward of run and references over the same columns, signed so that higher is better.

    `run` has shape (W + 2,), `seeds` (k, W + 2): W windows, the whole run, the trend.
    """

    spec: RewardSpec
    windows: list[tuple[int, int]]
    run: FloatArray
    seeds: FloatArray
    gain: float
    covered: FloatArray
    noise: float
    run_series: Series
    seed_series: list[Series]

    @property
    def sign(self) -> float:
        """1, or -1 for a metric that falls while training."""
        return 1.0 if self.spec.direction == "up" else -1.0

    @property
    def borrowed(self) -> bool:
        """Whether the spread between runs is (also) that of other references."""
        return len(self.seeds) < _BORROW_BELOW

    @property
    def material(self) -> float:
        """The smallest drop that is evidence, in the metric's unit."""
        share = _GROSS_SHARE if len(self.seeds) < OWN_SPREAD else _MATERIAL_SHARE
        material = share * max(self.gain, 0.0)
        margin = self.spec.margin
        return material if margin is None else min(material, margin / 2)

    @property
    def margin(self) -> float:
        """The drop that a PASS excludes, in the metric's unit."""
        stated = self.spec.margin
        return stated if stated is not None else _MARGIN_SHARE * self.gain

    @property
    def slow(self) -> float:
        """How far the mean of a run at half the reference's speed is below the reference's."""
        first, last = self.windows[0][0], self.windows[-1][1]
        losses = []
        for series in self.seed_series:
            within = series.between(first, last)
            half = np.interp(within.steps / 2, series.steps, series.values)
            losses.append(float((within.values - half).mean()))
        return self.sign * float(np.mean(losses))


def split(windows: int | Sequence[tuple[int, int]], steps: int) -> list[tuple[int, int]]:
    """Windows inside 1..steps: equal ones for a number, the given ones as far as they fit."""
    if not isinstance(windows, int):
        return [(a, b) for a, b in windows if b <= steps] or [(1, steps)]
    edges = np.linspace(0, steps, min(windows, steps) + 1).round().astype(int)
    return [(int(a) + 1, int(b)) for a, b in itertools.pairwise(edges)]


def _columns(series: Series, windows: list[tuple[int, int]]) -> FloatArray:
    """Means of the windows, mean of the steps that they cover, last window minus first."""
    parts = [series.between(a, b).values for a, b in windows]
    means = [part.mean() if len(part) else np.nan for part in parts]
    whole = series.between(windows[0][0], windows[-1][1]).values
    return np.array([*means, whole.mean() if len(whole) else np.nan, means[-1] - means[0]])


def compare(table: MetricTable, reference: Reference, steps: int) -> Compared:
    """The columns of run and reference runs over steps 1..`steps`."""
    spec = reference.metrics.reward
    run = fill(table.series(spec.metric), 1, steps)
    seeds = [fill(one.series(spec.metric), 1, steps) for one in reference.runs]
    windows = split(spec.windows, steps)
    sign = 1.0 if spec.direction == "up" else -1.0
    matrix = sign * np.array([_columns(series, windows) for series in seeds])
    # The level before learning: the first tenth of the steps, where a frozen actor would stay.
    start = np.array([series.values[: max(1, len(series) // 10)].mean() for series in seeds])
    gain = float(matrix[:, len(windows) - 1].mean() - sign * start.mean())
    noise = step_noise(run.values)
    covered = np.append(coverage(run, windows), len(run) / steps)
    # The trend needs the two windows that it is made of.
    covered = np.append(covered, min(covered[0], covered[len(windows) - 1]))
    return Compared(
        spec, windows, sign * _columns(run, windows), matrix, gain, covered, noise, run, seeds
    )


def limits_of(compared: Compared) -> Bounds:
    """The bounds of all columns under one alpha; columns that judge nothing have alpha 0."""
    count = len(compared.windows)
    shares = (WINDOW_SHARE, WHOLE_SHARE, _TREND_SHARE)
    windows, whole, trend = (share * ALPHA["reward"] for share in shares)
    alpha = np.array([*[windows / count] * count, whole, trend])
    prior = None
    if compared.borrowed:
        alone = len(compared.seeds) < OWN_SPREAD
        freedom = _BORROWED_FREEDOM if alone else _MIXED_FREEDOM
        prior = Prior(_borrowed(compared), freedom)
    return bounds(compared.seeds, alpha, prior, pooled=count)


def _borrowed(compared: Compared) -> FloatArray:
    """Borrowed spread between runs of each column, with the noise of its steps (shape (W + 2,))."""
    points = [len(compared.run_series.between(a, b)) for a, b in compared.windows]
    noise = compared.noise if np.isfinite(compared.noise) else 0.0
    errors = noise / np.sqrt(np.maximum([*points, sum(points)], 1))
    share = np.array([*[_BORROWED_WINDOW] * len(points), _BORROWED_WHOLE])
    spread = np.hypot(share * max(compared.gain, 0.0), errors)
    return np.append(spread, np.hypot(spread[0], spread[len(points) - 1]))


def without_reward(reference: Reference, steps: int) -> CheckResult | None:
    """The answer where a reference (an arbitrary file, say) has no reward to compare with."""
    metric = reference.metrics.reward.metric
    if steps and all(len(fill(run.series(metric), 1, steps)) for run in reference.runs):
        return None
    return found("reward.no-reference", metric, {}, reference=reference.name, metric=metric)
