"""Rollout against training: probability difference and KL."""

from __future__ import annotations

from typing import Any

import numpy as np

from reprise.curves.reference import ProbsDiffSpec
from reprise.curves.result import CheckResult, WindowResult, note, number
from reprise.curves.reward import split
from reprise.curves.spread import ALPHA, bounds
from reprise.findings import Finding, State
from reprise.metrics import MetricTable, Series
from reprise.metrics.table import FloatArray

__all__ = ["against_seeds", "ceiling", "valid_probs_diff"]

# Below this both metrics are rounding of float32 sums, and k3 may even come out negative.
_FLOOR = 1e-6
# Seeds that agree closely would flag another CPU; only half as much again is a real difference.
_MATERIAL_FACTOR = 1.5
# Against one reference run, whose spread is unknown.
_GROSS_FACTOR = 3.0
_TAIL = 5
_DECAY = 0.8
_WINDOWS = 3
# A median over half of a window still tells its level.
_ENOUGH = 0.5


def valid_probs_diff(table: MetricTable, spec: ProbsDiffSpec) -> Series:
    """The probs diff at steps where verl marked it valid (`..._valid` absent or not 0)."""
    series = table.series(spec.metric).finite()
    flags = table.series(spec.valid)
    invalid = flags.steps[flags.values == 0]
    return series.keep(~np.isin(series.steps, invalid))


def ceiling(table: MetricTable, spec: ProbsDiffSpec, expected: int) -> CheckResult:
    """The recipe's own expectation: few steps above `spec.ceiling`, none of it lasting, a decay."""
    assert spec.ceiling is not None
    series = valid_probs_diff(table, spec)
    rule, limit = "probs-diff-ceiling", spec.ceiling
    if not len(series):
        text = f"the run has no valid {spec.metric}"
        fix = "set actor_rollout_ref.rollout.calculate_log_probs=True"
        return CheckResult(rule, State.UNKNOWN, spec.metric, text, fix, {})
    above = series.values > limit
    tail = len(above) - (int(np.flatnonzero(~above)[-1]) + 1 if (~above).any() else 0)
    # Steps that verl marked invalid were trained all the same.
    logged = len(table.series(spec.metric))
    whole = logged >= 0.98 * expected and len(series) >= _ENOUGH * expected
    numbers: dict[str, Any] = {
        "ceiling": limit,
        "steps_above": int(above.sum()),
        "share_above": float(above.sum() / expected),
        "share_allowed": spec.share_above,
        "tail_above": tail,
    }
    notes = _spikes(series, limit)
    worst = f"{int(above.sum())} of {expected} steps above {number(limit)}"
    problems = []
    if above.sum() > spec.share_above * expected:
        problems.append(f"{worst}, at most {spec.share_above:.0%} expected")
    if whole and tail >= _TAIL:
        slope = float(np.polyfit(series.steps[-tail:], series.values[-tail:], 1)[0])
        numbers |= {"tail_start": int(series.steps[-tail]), "tail_slope": slope}
        problems.append(
            f"above {number(limit)} at every step from {series.steps[-tail]} on, "
            f"slope {slope:+.2g} a step"
        )
    ratio, decays = _decay(series)
    if spec.decay and ratio is not None:
        numbers["decay_ratio"] = ratio
        if whole and ratio >= 1:
            problems.append("the last quarter is the highest: it does not decay")
    if problems:
        start = numbers.get("tail_start", series.steps[above][0] if above.any() else 1)
        where = f"{spec.metric}@{start}"
        fix = (
            "check weight sync, vLLM and driver versions, disable_cascade_attn and the weight "
            "bridge of the rollout"
        )
        return CheckResult(rule, State.FAILED, where, "; ".join(problems), fix, numbers, (), notes)
    if not whole or (spec.decay and not decays):
        text = f"{worst}; " + (
            f"only {len(series)} of {expected} steps hold a valid value"
            if not whole
            else f"last quarter {ratio:.2f} of the highest, at most {_DECAY} shows a decay"
        )
        fix = "let the run finish, then compare again"
        return CheckResult(rule, State.UNKNOWN, spec.metric, text, fix, numbers, (), notes)
    text = f"{worst}" + (f"; decays to {ratio:.2f} of its highest quarter" if spec.decay else "")
    return CheckResult(rule, State.PASSED, spec.metric, text, "", numbers, (), notes)


def _decay(series: Series) -> tuple[float | None, bool]:
    """(median of the last quarter / highest median of a quarter, whether it shows a decay)."""
    if len(series) < 8:
        return None, False
    quarters = [float(np.median(part)) for part in np.array_split(series.values, 4)]
    if quarters[-1] >= max(quarters):
        return 1.0, False
    ratio = quarters[-1] / max(quarters)
    return ratio, ratio <= _DECAY


def _spikes(series: Series, limit: float) -> tuple[Finding, ...]:
    """Lone steps above the ceiling: worth knowing, no evidence of a mismatch."""
    above = np.flatnonzero(series.values > limit)
    lone = [i for i in above if not {i - 1, i + 1} & set(above.tolist())]
    if not lone or len(lone) > 3:
        return ()
    return tuple(
        note(
            "probs-diff-ceiling",
            f"{series.metric}@{series.steps[i]}",
            f"isolated spike {number(float(series.values[i]))}",
        )
        for i in lone
    )


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
    results = tuple(
        WindowResult(
            metric,
            *window,
            float(np.exp(ours[i])),
            float(np.exp(-limits.mean[i])),
            float(np.exp(-limits.mean[i]) * limits.deviation[i]),
            float(np.exp(-limits.mean[i] + half[i])),
            float(np.exp(-limits.mean[i]) * np.expm1(max(limits.smallest[i], half[i]))),
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
        if len(part) >= _ENOUGH * (last - first + 1):
            medians[i] = np.log(max(float(np.median(part)), _FLOOR))
    return medians


def _too_small(rule: str, metric: str, factors: list[float]) -> tuple[Finding, ...]:
    if max(factors) > 0.2:
        return ()
    text = "under a fifth of the reference runs' values: another precision or sampling path?"
    return (note(rule, metric, text),)
