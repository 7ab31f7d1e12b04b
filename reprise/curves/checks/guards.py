"""Guards: gross faults that the reward can hide, two-sided, in every metric that shows them.

Each has its bound from the reference runs, else from the recipe (reward.range, assertions). A
guard that could not have failed is listed as undecided, never as passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprise.core.findings import State
from reprise.curves.checks.levels import Level, compare_levels
from reprise.curves.checks.soundness import CLIP_RATIO, clipped, longest
from reprise.curves.reference import Reference
from reprise.curves.result import CheckResult, found, number
from reprise.curves.spread import ALPHA, BORROWED
from reprise.metrics import MetricTable, Series

__all__ = ["guards"]

_REWARD_RANGE = "guard-reward-range"
# The share of a run's steps (and the fewest) that make a state of what could be an accident.
_TAIL_SHARE, _TAIL_LEAST = 0.1, 3
_CLIPPED = 0.99
# A share (clip ratio, aborted answers) may be this much above the highest reference run's.
_SHARE_MATERIAL = 0.25
_ABORTED_MATERIAL = 0.05
# The number of samples a step is the same in every run of a recipe, but for what is filtered.
_SAMPLES_MATERIAL = 0.1
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class _Guard:
    """A metric's level, two-sided; `never_zero`: a tail of zeros is a fault by itself."""

    rule: str
    metric: str
    level: Level
    never_zero: bool = False


# The borrowed spreads: the largest of the recorded rehearsal references, rounded up; lengths and
# tokens vary more where answers are long, which a toy task does not show.
_LEVELS = (
    _Guard("guard-entropy", "actor/entropy", Level(_TINY, 1.5, 3.0, 0.07, 0.05), True),
    _Guard("guard-grad-norm", "actor/grad_norm", Level(_TINY, 2.0, 5.0, 0.23, 0.12), True),
    _Guard("guard-length", "response_length/mean", Level(_TINY, 1.25, 2.0, 0.06, 0.05)),
    _Guard("guard-tokens", "perf/total_num_tokens", Level(_TINY, 1.25, 2.0, 0.06, 0.05)),
)
_SHARES = (
    ("guard-clip-ratio", CLIP_RATIO, _SHARE_MATERIAL),
    ("guard-aborted", "response/aborted_ratio", _ABORTED_MATERIAL),
)


def guards(table: MetricTable, reference: Reference, steps: int) -> Iterator[CheckResult]:
    """One check a guard over steps 1..steps."""
    yield _reward_range(table, reference, steps)
    for guard in _LEVELS:
        yield _two_sided(guard, table, reference, steps)
    for rule, metric, material in _SHARES:
        yield _share(rule, metric, material, table, reference, steps)
    yield _samples(table, reference, steps)


def _bare(
    rule: str, metric: str, table: MetricTable, seeds: list[Series], run: Series
) -> CheckResult | None:
    """The answer where one side has no values of `metric`."""
    if not all(len(series) for series in seeds):
        # A listed gap of the reference: more of this run would not close it.
        result = found("guard.no-reference", metric, {"resolved": False})
        return replace(result, rule=rule)
    if not len(run):
        return replace(found("guard.no-values", metric, {}, run=table.run), rule=rule)
    return None


def _reward_range(table: MetricTable, reference: Reference, steps: int) -> CheckResult:
    """Whether the mean reward is inside its support: the recipe's, else the highest and lowest."""
    spec = reference.metrics.reward
    run = table.series(spec.metric).finite().between(1, steps)
    numbers: dict[str, object] = {}
    support, source = spec.range, "the recipe's reward.range"
    if support is None:
        support, source = _observed(reference), "the reference runs' smallest and largest reward"
    if support is None:
        numbers["resolved"] = False
        return found("guard-reward-range.no-range", spec.metric, numbers)
    if not len(run):
        result = found("guard.no-values", spec.metric, numbers, run=table.run)
        return replace(result, rule=_REWARD_RANGE)
    low, high = support
    slack = 1e-6 * max(abs(low), abs(high), 1.0)
    outside = (run.values < low - slack) | (run.values > high + slack)
    numbers |= {"range": [low, high], "outside": int(outside.sum())}
    shown = f"{number(low)} to {number(high)}"
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        return found(
            "guard-reward-range.outside",
            f"{spec.metric}@{run.steps[first]}",
            numbers,
            found=number(float(run.values[first])),
            count=int(outside.sum()),
            steps=len(run),
            range=shown,
            source=source,
        )
    text = f"inside {shown} ({source}) at all {len(run)} steps"
    return CheckResult(_REWARD_RANGE, State.PASSED, spec.metric, text, "", numbers)


def _observed(reference: Reference) -> tuple[float, float] | None:
    """The extremes of single rewards over all reference runs; None where they are not recorded."""
    stem = reference.metrics.reward.metric.rpartition("/")[0]
    lows = [run.series(f"{stem}/min").finite().values for run in reference.runs]
    highs = [run.series(f"{stem}/max").finite().values for run in reference.runs]
    if not all(map(len, lows)) or not all(map(len, highs)):
        return None
    low, high = min(float(v.min()) for v in lows), max(float(v.max()) for v in highs)
    return (low, high) if low < high else None


def _two_sided(guard: _Guard, table: MetricTable, reference: Reference, steps: int) -> CheckResult:
    run = table.series(guard.metric).finite().between(1, steps)
    seeds = [one.series(guard.metric).finite().between(1, steps) for one in reference.runs]
    if guard.never_zero and len(run):
        start = _tail_from(run, lambda values: np.abs(values) <= _TINY, steps)
        usual = any(_tail_from(s, lambda v: np.abs(v) <= _TINY, steps) is not None for s in seeds)
        if start is not None and not usual:
            result = found("guard.zero", f"{guard.metric}@{start}", {"from": start}, step=start)
            return replace(result, rule=guard.rule)
    if (bare := _bare(guard.rule, guard.metric, table, seeds, run)) is not None:
        return bare
    # Two-sided: each side has half.
    alpha = ALPHA["guards"] / len(_LEVELS) / 2
    levels = compare_levels(run, seeds, steps, guard.level, alpha)
    if levels is None:
        result = found("guard.few-values", guard.metric, {}, held=len(run), steps=steps)
        return replace(result, rule=guard.rule)
    beyond = np.abs(levels.ratio) > levels.half
    worst = int(np.argmax(np.where(beyond, np.abs(levels.ratio), -np.inf)))
    sign = 1.0 if levels.ratio[worst] > 0 else -1.0
    results = levels.results(guard.metric, beyond, sign)
    factors = levels.factors
    numbers: dict[str, object] = {
        "factors": factors,
        "detectable_factor": levels.detectable,
        "false_alarm_rate": 2 * alpha,
        "borrowed_spread": BORROWED,
    }
    if beyond.any():
        first, last = levels.windows[worst]
        result = found(
            "guard.beyond",
            f"{guard.metric}@{first}-{last}",
            numbers,
            results,
            factor=number(factors[worst]),
            low=number(float(np.exp(-levels.half[worst]))),
            high=number(float(np.exp(levels.half[worst]))),
        )
        return replace(result, rule=guard.rule)
    if levels.detectable > guard.level.resolution:
        numbers["resolved"] = False
        detectable = number(levels.detectable)
        needed = guard.level.resolution
        result = found(
            "guard.cannot-resolve", guard.metric, numbers, results, factor=detectable, needed=needed
        )
        return replace(result, rule=guard.rule)
    shown = ", ".join(f"{factor:.2f}" for factor in factors)
    text = f"{shown} times the reference runs' values; detects a factor of {levels.detectable:.3g}"
    return CheckResult(guard.rule, State.PASSED, guard.metric, text, "", numbers, results)


def _tail_from(series: Series, bad: Callable[[np.ndarray], np.ndarray], steps: int) -> int | None:
    """The step from which `bad` holds to the end, if that lasts; else None."""
    fine = np.flatnonzero(~bad(series.values))
    start = int(fine[-1]) + 1 if len(fine) else 0
    if len(series) - start < max(_TAIL_LEAST, _TAIL_SHARE * steps):
        return None
    return int(series.steps[start])


def _shares(metric: str, tables: Sequence[MetricTable], steps: int) -> list[Series]:
    if metric != CLIP_RATIO:
        return [table.series(metric).finite().between(1, steps) for table in tables]
    limit = longest(*tables)
    return [clipped(table, limit).between(1, steps) for table in tables]


def _share(
    rule: str,
    metric: str,
    material: float,
    table: MetricTable,
    reference: Reference,
    steps: int,
) -> CheckResult:
    """A share between 0 and 1 against the highest reference run, and saturated to the end."""
    run, *seeds = _shares(metric, (table, *reference.runs), steps)
    if len(run):
        start = _tail_from(run, lambda values: values >= _CLIPPED, steps)
        usual = any(_tail_from(s, lambda v: v >= _CLIPPED, steps) is not None for s in seeds)
        if start is not None and not usual:
            result = found("guard.saturated", f"{metric}@{start}", {"from": start}, step=start)
            return replace(result, rule=rule)
    if (bare := _bare(rule, metric, table, seeds, run)) is not None:
        return bare
    mean = float(run.values.mean())
    highest = max(float(series.values.mean()) for series in seeds)
    limit = highest + material
    numbers: dict[str, object] = {"mean": mean, "highest_reference": highest, "limit": limit}
    if mean > limit:
        result = found(
            "guard.share",
            metric,
            numbers,
            found=number(mean),
            limit=number(limit),
            highest=number(highest),
        )
        return replace(result, rule=rule)
    if limit >= 1:
        numbers["resolved"] = False
        return replace(found("guard.share-cannot-resolve", metric, numbers, limit=limit), rule=rule)
    text = f"mean {number(mean)}, limit {number(limit)} (highest reference run {number(highest)})"
    return CheckResult(rule, State.PASSED, metric, text, "", numbers)


def _samples(table: MetricTable, reference: Reference, steps: int) -> CheckResult:
    """Answers a step, from tokens and mean lengths (verl logs no count): equal in all runs."""
    rule, metric = "guard-samples", "perf/total_num_tokens"
    run = _count(table, steps)
    seeds = [_count(one, steps) for one in reference.runs]
    if (bare := _bare(rule, metric, table, seeds, run)) is not None:
        return bare
    usual = float(np.median([np.median(series.values) for series in seeds]))
    ours = float(np.median(run.values))
    numbers: dict[str, object] = {"samples": ours, "reference": usual}
    if abs(ours / usual - 1) > _SAMPLES_MATERIAL:
        result = found(
            "guard.samples", metric, numbers, found=number(ours), reference=number(usual)
        )
        return replace(result, rule=rule)
    text = f"{number(ours)} samples a step, as in the reference runs ({number(usual)})"
    return CheckResult(rule, State.PASSED, metric, text, "", numbers)


def _count(table: MetricTable, steps: int) -> Series:
    """Samples of each step: tokens over the mean length of a prompt with its response."""
    names = ("perf/total_num_tokens", "prompt_length/mean", "response_length/mean")
    tokens, prompt, response = (table.series(n).finite().between(1, steps) for n in names)
    common = np.intersect1d(np.intersect1d(tokens.steps, prompt.steps), response.steps)
    total, first, second = (s.values[np.isin(s.steps, common)] for s in (tokens, prompt, response))
    lengths = first + second
    fine = lengths > 0
    empty = np.full(int(fine.sum()), np.nan)
    return Series("samples", common[fine], total[fine] / lengths[fine], empty)
