"""Rollout against training: probability difference and KL."""

from __future__ import annotations

import numpy as np

from reprise.core.findings import Finding, State
from reprise.curves.reference import ProbsDiffSpec
from reprise.curves.result import CheckResult, WindowResult, note
from reprise.curves.reward import split
from reprise.curves.spread import ALPHA, bounds
from reprise.metrics import MetricTable, Series
from reprise.metrics.table import FloatArray

__all__ = ["ENOUGH", "against_seeds", "valid_probs_diff"]

# Below this both metrics are rounding of float32 sums, and k3 may even come out negative.
_FLOOR = 1e-6
# Seeds that agree closely would flag another CPU; only half as much again is a real difference.
_MATERIAL_FACTOR = 1.5
# Two runs give bounds beyond what a float holds; e to the 50th is as good as no bound.
_MOST = 50.0
# Against one reference run, whose spread is unknown.
_GROSS_FACTOR = 3.0
_WINDOWS = 3
# A median over half of a window still tells its level.
ENOUGH = 0.5


def valid_probs_diff(table: MetricTable, spec: ProbsDiffSpec) -> Series:
    """The probs diff at steps where verl marked it valid (`..._valid` absent or not 0)."""
    series = table.series(spec.metric).finite()
    flags = table.series(spec.valid)
    invalid = flags.steps[flags.values == 0]
    return series.keep(~np.isin(series.steps, invalid))


def against_seeds(rule: str, run: Series, seeds: list[Series], steps: int) -> CheckResult:
    """Window medians of `run` against those of the reference runs, on a log scale, from above.

    Medians, so that a lone spike does not decide; the log scale, because both metrics fall over
    orders of magnitude. `rule` is "probs-diff" or "kl".
    """
    windows = split(_WINDOWS, steps)
    metric = run.metric
    ours = _log_medians(run, windows)
    theirs = np.array([_log_medians(series, windows) for series in seeds])
    if not np.isfinite(ours).all() or not np.isfinite(theirs).all():
        held = len(run.between(1, steps))
        text = f"the run has {held} of {steps} valid values, too few for its windows"
        fix = "compare a finished run of the same recipe"
        return CheckResult(rule, State.UNKNOWN, metric, text, fix, {})
    ratio = ours - theirs.mean(axis=0)
    if len(seeds) == 1:
        return _against_one(rule, metric, windows, ours, theirs[0])
    limits = bounds(-theirs, ALPHA[rule])
    half = np.maximum(limits.half, np.log(_MATERIAL_FACTOR))
    above = ratio > half
    shift = np.maximum(limits.smallest, half)
    results = tuple(
        WindowResult(
            metric,
            *window,
            float(np.exp(ours[i])),
            float(np.exp(-limits.mean[i])),
            float(np.exp(-limits.mean[i]) * limits.deviation[i]),
            float(np.exp(-limits.mean[i] + min(half[i], _MOST))),
            float(np.exp(-limits.mean[i]) * np.expm1(min(shift[i], _MOST))),
            State.FAILED if above[i] else State.PASSED,
        )
        for i, window in enumerate(windows)
    )
    factors = [float(value) for value in np.exp(ratio)]
    numbers = {"factors": factors, "freedom": limits.freedom, "false_alarm_rate": ALPHA[rule]}
    notes = _too_small(rule, metric, factors)
    if above.any():
        worst = int(np.argmax(ratio * above))
        text = (
            f"{factors[worst]:.2f} times the reference runs' typical value, "
            f"bound {float(np.exp(half[worst])):.2f} times"
        )
        where = f"{metric}@{windows[worst][0]}-{windows[worst][1]}"
        fix = "check precision, weight sync and versions of rollout and trainer against the lock"
        return CheckResult(rule, State.FAILED, where, text, fix, numbers, results, notes)
    text = f"{', '.join(f'{factor:.2f}' for factor in factors)} times the reference runs' values"
    return CheckResult(rule, State.PASSED, metric, text, "", numbers, results, notes)


def _against_one(
    rule: str, metric: str, windows: list[tuple[int, int]], ours: FloatArray, theirs: FloatArray
) -> CheckResult:
    factors = np.exp(ours - theirs)
    unknown = float("nan")
    results = tuple(
        WindowResult(
            metric,
            *window,
            float(np.exp(ours[i])),
            float(np.exp(theirs[i])),
            unknown,
            float(np.exp(theirs[i]) * _GROSS_FACTOR),
            unknown,
            State.FAILED if factors[i] > _GROSS_FACTOR else State.UNKNOWN,
        )
        for i, window in enumerate(windows)
    )
    numbers = {"factors": [float(factor) for factor in factors], "gross_factor": _GROSS_FACTOR}
    text = f"{', '.join(f'{factor:.2f}' for factor in factors)} times the one reference run"
    if (factors > _GROSS_FACTOR).any():
        fix = "check precision, weight sync and versions of rollout and trainer against the lock"
        text = f"{text}, more than {_GROSS_FACTOR:g} times is no accident"
        return CheckResult(rule, State.FAILED, metric, text, fix, numbers, results)
    fix = "record at least 5 more reference runs with other seeds (reprise baseline)"
    text = f"{text}; one run shows no spread"
    return CheckResult(rule, State.UNKNOWN, metric, text, fix, numbers, results)


def _log_medians(series: Series, windows: list[tuple[int, int]]) -> FloatArray:
    """Log of each window's median, shape (W,); NaN where under half of the steps are valid."""
    medians = np.full(len(windows), np.nan)
    for i, (first, last) in enumerate(windows):
        part = series.between(first, last).values
        if len(part) >= ENOUGH * (last - first + 1):
            medians[i] = np.log(max(float(np.median(part)), _FLOOR))
    return medians


def _too_small(rule: str, metric: str, factors: list[float]) -> tuple[Finding, ...]:
    if max(factors) > 0.2:
        return ()
    text = "under a fifth of the reference runs' values: another precision or sampling path?"
    return (note(rule, metric, text),)
