"""Reward: the run is not below the reference runs, in windows, as a whole and as a trend."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from reprise.core.findings import State
from reprise.curves.checks.compared import (
    OWN_SPREAD,
    WHOLE_SHARE,
    WINDOW_SHARE,
    Compared,
    compare,
    limits_of,
    without_reward,
)
from reprise.curves.checks.resolution import record_more
from reprise.curves.checks.shape import lag, parting
from reprise.curves.reference import Reference
from reprise.curves.result import CheckResult, WindowResult, found, number
from reprise.curves.spread import ALPHA, BORROWED, Bounds, fill, needed_runs, step_noise
from reprise.metrics import MetricTable

__all__ = ["reward_windows"]

# A run that is better than the bound by more than this share of the gain is not the same run.
_BETTER_SHARE = 0.25
# A run that lost what a PASS excludes passes with this probability at most.
_MISSED = 0.01
_MORE_RUNS = "train further seeds, and compare the groups: reprise compare RUN1 RUN2 vs REF1 REF2"
_COVERED = 0.8
_OVERLAP = 0.5


def reward_windows(table: MetricTable, reference: Reference, steps: int) -> CheckResult:
    """Non-inferiority of the reward over steps 1..steps: windows, the whole run, the trend."""
    spec = reference.metrics.reward
    if (lacking := without_reward(reference, steps)) is not None:
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
    return _judge(compare(table, reference, steps))


def _judge(compared: Compared) -> CheckResult:
    limits = limits_of(compared)
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
    if (possible := _not_excluded(compared, limits, columns, numbers)) is not None:
        return possible
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
    compared: Compared,
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


def _not_excluded(
    compared: Compared,
    limits: Bounds,
    columns: tuple[WindowResult, ...],
    numbers: dict[str, object],
) -> CheckResult | None:
    """A run that is within its bounds, and also where a run that lost too much would be.

    That loss is the stated margin in the last window; without one, what half the speed costs over
    the whole run.
    """
    last = len(compared.windows) - 1
    stated = compared.spec.margin
    if stated is None and len(compared.seeds) < OWN_SPREAD:
        return None  # resolution asks for a margin
    at, lost = (last, stated) if stated is not None else (last + 1, compared.slow)
    error = float(limits.deviation[at]) * math.sqrt(1 + 1 / limits.runs)
    reach = -float(special.stdtrit(limits.freedom[at], _MISSED)) * error
    below = float(limits.mean[at] - compared.run[at])
    numbers["excluded_drop"], numbers["not_excluded_below"] = lost, below + reach
    if below + reach < lost:
        return None
    column = columns[at]
    share = WINDOW_SHARE / len(compared.windows) if at == last else WHOLE_SHARE
    more = needed_runs(float(limits.deviation[at]), lost, share * ALPHA["reward"])
    return found(
        "reward.not-excluded",
        f"{column.metric}@{column.first}-{column.last}",
        numbers,
        columns,
        found=number(column.run),
        reference=number(column.reference),
        meaning="the margin" if at == last else "what half the speed costs",
        lost=number(lost),
        reach=number(below + reach),
        fix=record_more(more, len(compared.seeds)) if more else _MORE_RUNS,
    )


def _explain(
    compared: Compared, columns: tuple[WindowResult, ...], numbers: dict[str, object], worst: int
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


def _shape(compared: Compared) -> tuple[int | None, int]:
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


def _results(compared: Compared, limits: Bounds, states: list[State]) -> tuple[WindowResult, ...]:
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


def _numbers(compared: Compared) -> dict[str, object]:
    return {"reference_gain": compared.gain, "reference_runs": len(compared.seeds)}
