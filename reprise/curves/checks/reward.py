"""Reward: non-inferiority of the run to the reference runs, by windows, as a whole and as a trend.

The columns that are compared: the mean of each window, the mean of the whole run (it sees a run
that learns at half the speed), and the last window against the first (a run that stops learning).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprise.core.findings import State
from reprise.curves.checks.shape import lag, parting
from reprise.curves.reference import Reference, RewardSpec
from reprise.curves.result import CheckResult, WindowResult, found, number
from reprise.curves.spread import (
    ALPHA,
    BORROWED,
    Bounds,
    Prior,
    bounds,
    coverage,
    fill,
    needed_runs,
    step_noise,
)
from reprise.metrics import MetricTable, Series
from reprise.metrics.table import FloatArray

__all__ = ["resolution", "reward_windows", "split"]

# A shortfall under this share of the reference's gain is never evidence, however tight the seeds;
# of one or two reference runs, one under a third.
_MATERIAL_SHARE = 0.05
_GROSS_SHARE = 1 / 3
# Unless a margin is stated: a run that loses this share of the reference's gain must be detected.
_MARGIN_SHARE = 0.6
# A run that is better than the bound by more than this share of the gain is not the same run.
_BETTER_SHARE = 0.25
# Standard deviation between correct runs as a share of the gain: the largest of the recorded
# rehearsal references, for a window and for the whole run. Mixed in below eight reference runs,
# with fewer degrees of freedom once three do.
_BORROWED_WINDOW, _BORROWED_WHOLE = 0.06, 0.03
_BORROWED_FREEDOM, _MIXED_FREEDOM = 12.0, 6.0
_BORROW_BELOW = 8
# Below this a PASS on a borrowed spread needs a margin that the user states.
_OWN_SPREAD = 3
# Shares of alpha: the windows, the whole run, the trend.
_SHARES = (0.4, 0.45, 0.15)
_COVERED = 0.8
_OVERLAP = 0.5


@dataclass(frozen=True, slots=True)
class _Compared:
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
        return 1.0 if self.spec.direction == "up" else -1.0

    @property
    def borrowed(self) -> bool:
        """Whether the spread between runs is (also) that of other references."""
        return len(self.seeds) < _BORROW_BELOW

    @property
    def material(self) -> float:
        share = _GROSS_SHARE if len(self.seeds) < _OWN_SPREAD else _MATERIAL_SHARE
        material = share * max(self.gain, 0.0)
        margin = self.spec.margin
        return material if margin is None else min(material, margin / 2)

    @property
    def margin(self) -> float:
        """The drop that a PASS excludes, in the metric's unit."""
        stated = self.spec.margin
        return stated if stated is not None else _MARGIN_SHARE * self.gain


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


def _compare(table: MetricTable, reference: Reference, steps: int) -> _Compared:
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
    return _Compared(
        spec, windows, sign * _columns(run, windows), matrix, gain, covered, noise, run, seeds
    )


def _limits(compared: _Compared) -> Bounds:
    """The bounds of all columns under one alpha; columns that judge nothing have alpha 0."""
    count = len(compared.windows)
    windows, whole, trend = (share * ALPHA["reward"] for share in _SHARES)
    alpha = np.array([*[windows / count] * count, whole, trend])
    prior = None
    if compared.borrowed:
        alone = len(compared.seeds) < _OWN_SPREAD
        freedom = _BORROWED_FREEDOM if alone else _MIXED_FREEDOM
        prior = Prior(_borrowed(compared), freedom)
    return bounds(compared.seeds, alpha, prior, pooled=count)


def _borrowed(compared: _Compared) -> FloatArray:
    """Borrowed spread between runs of each column, with the noise of its steps (shape (W + 2,))."""
    points = [len(compared.run_series.between(a, b)) for a, b in compared.windows]
    noise = compared.noise if np.isfinite(compared.noise) else 0.0
    errors = noise / np.sqrt(np.maximum([*points, sum(points)], 1))
    share = np.array([*[_BORROWED_WINDOW] * len(points), _BORROWED_WHOLE])
    spread = np.hypot(share * max(compared.gain, 0.0), errors)
    return np.append(spread, np.hypot(spread[0], spread[len(points) - 1]))


def reward_windows(table: MetricTable, reference: Reference, steps: int) -> CheckResult:
    """Non-inferiority of the reward over steps 1..steps: windows, the whole run, the trend."""
    spec = reference.metrics.reward
    if (lacking := _without_reward(reference, steps)) is not None:
        return lacking
    run = fill(table.series(spec.metric), 1, steps)
    held = min(len(run), steps)
    if held < _OVERLAP * reference.steps:
        return found(
            "reward.overlap",
            spec.metric,
            {"overlap": held, "reference_steps": reference.steps},
            held=held,
            steps=reference.steps,
            least=int(np.ceil(_OVERLAP * reference.steps)),
        )
    return _judge(_compare(table, reference, steps))


def _without_reward(reference: Reference, steps: int) -> CheckResult | None:
    """The answer where a reference (an arbitrary file, say) has no reward to compare with."""
    metric = reference.metrics.reward.metric
    if steps and all(len(fill(run.series(metric), 1, steps)) for run in reference.runs):
        return None
    return found("reward.no-reference", metric, {}, reference=reference.name, metric=metric)


def _judge(compared: _Compared) -> CheckResult:
    limits = _limits(compared)
    loss = limits.mean - compared.run
    enough = compared.covered >= _COVERED
    # Runs that gain nothing show no scale for a borrowed spread.
    judged = enough & ((compared.gain > 0) | (not compared.borrowed))
    below = judged & (loss > limits.half) & (loss > compared.material)
    states = [
        State.UNKNOWN if not ok else State.FAILED if bad else State.PASSED
        for ok, bad in zip(judged, below, strict=True)
    ]
    columns = _results(compared, limits, states)
    numbers = _numbers(compared) | {
        "freedom": [float(value) for value in limits.freedom],
        "material_loss": compared.material,
        "false_alarm_rate": ALPHA["reward"],
    }
    if compared.borrowed:
        numbers["borrowed_spread"] = BORROWED
    if below.any():
        return _explain(compared, columns, numbers, int(np.argmax(np.where(below, loss, -np.inf))))
    if not enough.all():
        return found("reward.missing-steps", compared.spec.metric, numbers, columns)
    if not judged.all():
        return found("reward.no-gain", compared.spec.metric, numbers, columns)
    if (better := _better(compared, limits, columns, numbers)) is not None:
        return better
    count = len(compared.windows)
    runs = f"{limits.runs} reference run{'s' if limits.runs != 1 else ''}"
    text = (
        f"windows, whole run and trend are above the bounds of {runs}; "
        f"last {number(columns[count - 1].run)} against {number(columns[count - 1].reference)}"
    )
    behind = _shape(compared)[0]
    if behind is not None:
        numbers["lag"] = behind
        text += f"; lags by about {behind} steps"
    if compared.borrowed:
        text += f"; spread between runs borrowed from {BORROWED}"
    return CheckResult("reward", State.PASSED, compared.spec.metric, text, "", numbers, columns)


def _better(
    compared: _Compared,
    limits: Bounds,
    columns: tuple[WindowResult, ...],
    numbers: dict[str, object],
) -> CheckResult | None:
    """A reward far above all reference runs: another scale, leaked data, or a better recipe."""
    count = len(compared.windows) + 1
    excess = (compared.run - limits.mean)[:count]
    above = (excess > limits.half[:count]) & (excess > _BETTER_SHARE * max(compared.gain, 0.0))
    if not above.any():
        return None
    worst = int(np.argmax(np.where(above, excess, -np.inf)))
    column = columns[worst]
    return found(
        "reward.above",
        f"{compared.spec.metric}@{column.first}-{column.last}",
        numbers,
        columns,
        found=number(column.run),
        reference=number(column.reference),
    )


def _explain(
    compared: _Compared, columns: tuple[WindowResult, ...], numbers: dict[str, object], worst: int
) -> CheckResult:
    """A column is below its bound: a constant lag leaves it open, anything else is a failure."""
    column = columns[worst]
    behind, start = _shape(compared)
    where = f"{column.metric}@{column.first}-{column.last}"
    value, bound = number(column.run), number(column.bound)
    if behind is not None:
        numbers["lag"] = behind
        return found("reward.lag", where, numbers, columns, found=value, bound=bound, lag=behind)
    numbers["parting_step"] = start
    return found(
        "reward.below",
        where,
        numbers,
        columns,
        found=value,
        bound=bound,
        reference=number(column.reference),
        deviation=number(column.deviation),
        step=start,
    )


def _shape(compared: _Compared) -> tuple[int | None, int]:
    """(lag, parting step) of the run against the mean reference curve on their common steps."""
    common = compared.run_series.steps
    for series in compared.seed_series:
        common = np.intersect1d(common, series.steps)
    run = compared.run_series.values[np.isin(compared.run_series.steps, common)]
    seeds = np.array([s.values[np.isin(s.steps, common)] for s in compared.seed_series])
    mean = seeds.mean(axis=0)
    noise = float(np.hypot(compared.noise, step_noise(seeds[0]) / np.sqrt(len(seeds))))
    run, mean = compared.sign * run, compared.sign * mean
    return lag(run, mean, noise), parting(run, mean, common)


def _results(compared: _Compared, limits: Bounds, states: list[State]) -> tuple[WindowResult, ...]:
    sign, metric = compared.sign, compared.spec.metric
    first, last = compared.windows[0][0], compared.windows[-1][1]
    names = [*[metric] * (len(compared.windows) + 1), f"{metric} (last window - first)"]
    spans = [*compared.windows, (first, last), (first, last)]
    return tuple(
        WindowResult(
            names[i],
            *spans[i],
            sign * float(compared.run[i]),
            sign * float(limits.mean[i]),
            float(limits.deviation[i]),
            sign * float(limits.mean[i] - max(limits.half[i], compared.material)),
            float(max(limits.smallest[i], compared.material)),
            states[i],
        )
        for i in range(len(spans))
    )


def _numbers(compared: _Compared) -> dict[str, object]:
    return {"reference_gain": compared.gain, "reference_runs": len(compared.seeds)}


def resolution(table: MetricTable, reference: Reference, steps: int) -> CheckResult:
    """Whether the comparison could detect a drop of `margin` at the end of the run.

    Without this, a wide spread between reference runs would pass anything. A drop at the end is
    one of the last window; one that begins earlier also lowers the mean of the whole run.
    """
    spec = reference.metrics.reward
    if (lacking := _without_reward(reference, steps)) is not None:
        return replace(lacking, rule="resolution")
    compared = _compare(table, reference, steps)
    limits = _limits(compared)
    at = len(compared.windows) - 1
    smallest = float(max(limits.smallest[at], compared.material))
    whole = float(max(limits.smallest[at + 1], compared.material))
    margin = compared.margin
    numbers: dict[str, object] = {
        "smallest": smallest,
        "smallest_whole": whole,
        "margin": margin,
        "margin_stated": spec.margin is not None,
        "reference_gain": compared.gain,
    }
    first, last = compared.windows[-1]
    detects = (
        f"minimum detectable drop {number(smallest)} over steps {first}-{last}, "
        f"{number(whole)} over the whole run (90 % power)"
    )
    if compared.borrowed:
        numbers["borrowed_spread"] = BORROWED
        detects += f", with a spread between runs borrowed from {BORROWED}"
    if compared.gain <= 0 and (spec.margin is None or compared.borrowed):
        return found("resolution.no-gain", spec.metric, numbers, detects=detects)
    if len(compared.seeds) < _OWN_SPREAD and spec.margin is None:
        runs = len(compared.seeds)
        known = {"detects": detects, "runs": runs, "margin": number(smallest)}
        return found("resolution.borrowed", spec.metric, numbers, **known)
    if smallest <= margin:
        text = f"{detects}; margin {number(margin)}"
        return CheckResult("resolution", State.PASSED, spec.metric, text, "", numbers)
    share = _SHARES[0] * ALPHA["reward"] / len(compared.windows)
    each = 1.0 if compared.borrowed else float(limits.freedom[at]) / (len(compared.seeds) - 1)
    more = needed_runs(float(limits.deviation[at]), margin, share, each)
    numbers["runs_needed"] = more
    fix = (
        f"record {more} reference runs or more ({max(more - len(compared.seeds), 1)} further seeds)"
        if more
        else "use more steps or larger batches, or accept a larger margin: --margin"
    )
    return found(
        "resolution.too-wide",
        spec.metric,
        numbers,
        detects=detects,
        margin=number(margin),
        fix=fix,
    )
