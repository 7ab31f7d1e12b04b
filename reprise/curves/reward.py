"""Reward: is the run not inferior to the reference runs?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from reprise.core.findings import State
from reprise.curves.reference import Reference, RewardSpec
from reprise.curves.result import CheckResult, WindowResult, number
from reprise.curves.shape import lag, parting
from reprise.curves.spread import ALPHA, Bounds, bounds, coverage, fill, needed_runs, step_noise
from reprise.metrics import MetricTable, Series
from reprise.metrics.table import FloatArray

__all__ = ["resolution", "reward_windows", "split"]

# A shortfall under this share of the reference's gain is never evidence, however tight the seeds.
_MATERIAL_SHARE = 0.05
# Unless the reference states a margin: seeing this share of the gain nine times in ten means
# seeing an actor that does not learn at all, which loses all of it, 99 times in a hundred.
_MARGIN_SHARE = 0.85
# With one reference run only a loss of this share of its gain, beyond step noise, is evidence.
_GROSS_SHARE = 1 / 3
_GROSS_LEVEL = 0.01
_COVERED = 0.8
_OVERLAP = 0.5


@dataclass(frozen=True, slots=True)
class _Compared:
    """Reward of run and references over the same windows, signed so that higher is better."""

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


def split(windows: int | Sequence[tuple[int, int]], steps: int) -> list[tuple[int, int]]:
    """Windows inside 1..steps: equal ones for a number, the given ones as far as they fit."""
    if not isinstance(windows, int):
        return [(a, b) for a, b in windows if b <= steps] or [(1, steps)]
    edges = np.linspace(0, steps, min(windows, steps) + 1).round().astype(int)
    return [(int(a) + 1, int(b)) for a, b in itertools.pairwise(edges)]


def _means(series: Series, windows: list[tuple[int, int]]) -> FloatArray:
    parts = [series.between(a, b).values for a, b in windows]
    return np.array([part.mean() if len(part) else np.nan for part in parts])


def _compare(table: MetricTable, reference: Reference, steps: int) -> _Compared:
    spec = reference.metrics.reward
    run = fill(table.series(spec.metric), 1, steps)
    seeds = [fill(one.series(spec.metric), 1, steps) for one in reference.runs]
    windows = split(spec.windows, steps)
    sign = 1.0 if spec.direction == "up" else -1.0
    matrix = sign * np.array([_means(series, windows) for series in seeds])
    # The level before learning: the first tenth of the steps, where a frozen actor would stay.
    start = np.array([series.values[: max(1, len(series) // 10)].mean() for series in seeds])
    gain = float(matrix[:, -1].mean() - sign * start.mean())
    noise = step_noise(run.values)
    covered = coverage(run, windows)
    return _Compared(
        spec, windows, sign * _means(run, windows), matrix, gain, covered, noise, run, seeds
    )


def reward_windows(table: MetricTable, reference: Reference, steps: int) -> CheckResult:
    """Non-inferiority of the reward by windows over steps 1..steps."""
    spec = reference.metrics.reward
    if (lacking := _without_reward(reference, steps)) is not None:
        return lacking
    run = fill(table.series(spec.metric), 1, steps)
    held = min(len(run), steps)
    if held < _OVERLAP * reference.steps:
        text = f"insufficient overlap ({held}/{reference.steps} steps of the reference)"
        fix = f"train at least {int(np.ceil(_OVERLAP * reference.steps))} steps, better all"
        numbers = {"overlap": held, "reference_steps": reference.steps}
        return CheckResult("reward", State.UNKNOWN, spec.metric, text, fix, numbers)
    compared = _compare(table, reference, steps)
    if len(reference.runs) == 1:
        return _one_run(compared)
    return _many_runs(compared)


def _without_reward(reference: Reference, steps: int) -> CheckResult | None:
    """The answer where a reference (an arbitrary file, say) has no reward to compare with."""
    metric = reference.metrics.reward.metric
    if steps and all(len(fill(run.series(metric), 1, steps)) for run in reference.runs):
        return None
    text = f"the reference {reference.name} has no finite {metric}"
    fix = "name a reference folder, or a run that logged its reward"
    return CheckResult("reward", State.UNKNOWN, metric, text, fix, {})


def _many_runs(compared: _Compared) -> CheckResult:
    limits = bounds(compared.seeds, ALPHA["reward"])
    loss = limits.mean - compared.run
    material = _MATERIAL_SHARE * max(compared.gain, 0.0)
    enough = compared.covered >= _COVERED
    below = enough & (loss > limits.half) & (loss > material)
    states = [
        State.UNKNOWN if not ok else State.FAILED if bad else State.PASSED
        for ok, bad in zip(enough, below, strict=True)
    ]
    windows = _results(compared, limits, states)
    numbers = _numbers(compared) | {
        "freedom": limits.freedom,
        "material_loss": material,
        "false_alarm_rate": ALPHA["reward"],
    }
    if below.any():
        return _explain(compared, windows, numbers, int(np.argmax(np.where(below, loss, -np.inf))))
    if not enough.all():
        text = "the run lacks steps in some windows; the others lie within the seeds' spread"
        fix = "train to the end of the reference, then compare again"
        return CheckResult(
            "reward", State.UNKNOWN, compared.spec.metric, text, fix, numbers, windows
        )
    text = (
        f"every window lies above the bound that {limits.runs} reference runs set; "
        f"last {number(windows[-1].run)} against {number(windows[-1].reference)}"
    )
    return CheckResult("reward", State.PASSED, compared.spec.metric, text, "", numbers, windows)


def _explain(
    compared: _Compared, windows: tuple[WindowResult, ...], numbers: dict[str, object], worst: int
) -> CheckResult:
    """A window is below its bound: a constant lag leaves it open, anything else is a failure."""
    window = windows[worst]
    behind, start = _shape(compared)
    where = f"{compared.spec.metric}@{window.first}-{window.last}"
    short = f"{number(window.run)} is beyond the bound {number(window.bound)}"
    if behind is not None:
        numbers["lag"] = behind
        text = f"{short}, and a lag of about {behind} steps explains it"
        fix = "check warm-up, learning rate and data order; train longer to see it catch up"
        return CheckResult("reward", State.UNKNOWN, where, text, fix, numbers, windows)
    numbers["parting_step"] = start
    text = (
        f"{short} (reference {number(window.reference)}, sd {number(window.deviation)}); "
        f"the curves part at about step {start}"
    )
    fix = "compare recipe, lock and data of both runs, then the first steps after the parting"
    return CheckResult("reward", State.FAILED, where, text, fix, numbers, windows)


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


def _one_run(compared: _Compared) -> CheckResult:
    """Against a single run only a gross loss is evidence; agreement proves nothing."""
    reference = compared.seed_series[0]
    points = [len(reference.between(a, b)) for a, b in compared.windows]
    noise = float(np.hypot(compared.noise, step_noise(reference.values)))
    error = noise / np.sqrt(np.maximum(points, 1))
    loss = compared.seeds[0] - compared.run
    gross = _GROSS_SHARE * compared.gain
    beyond = float(stats.norm.isf(_GROSS_LEVEL)) * error
    enough = compared.covered >= _COVERED
    lost = enough & (loss - beyond > gross) if compared.gain > 0 else np.zeros_like(enough)
    states = [State.FAILED if bad else State.UNKNOWN for bad in lost]
    unknown = np.full(len(points), np.nan)
    half = gross + beyond if compared.gain > 0 else unknown
    limits = Bounds(compared.seeds[0], unknown, half, unknown, 0.0, 1)
    windows = _results(compared, limits, states)
    numbers = _numbers(compared) | {"step_noise": noise, "gross_loss": gross}
    behind, start = _shape(compared)
    numbers |= {"lag": behind} if behind is not None else {}
    # The last window decides: a run that starts slowly and catches up has lost nothing.
    if lost[-1] and behind is None:
        text = (
            f"{number(windows[-1].run)} against {number(windows[-1].reference)}: more than a third "
            f"of the reference's gain is missing; the curves part at about step {start}"
        )
        fix = "compare recipe, lock and data of both runs, then the steps after the parting"
        where = f"{compared.spec.metric}@{windows[-1].first}-{windows[-1].last}"
        numbers["parting_step"] = start
        return CheckResult("reward", State.FAILED, where, text, fix, numbers, windows)
    said = f"lags the reference by about {behind} steps" if behind else "consistent with it"
    shortfall = number(float(np.max(loss, where=enough, initial=0.0)))
    text = (
        f"one reference run: this run is {said} (largest shortfall of a window {shortfall}), "
        "but one run shows no spread between honest runs"
    )
    fix = "record at least 5 more reference runs with other seeds (reprise baseline)"
    return CheckResult("reward", State.UNKNOWN, compared.spec.metric, text, fix, numbers, windows)


def _results(compared: _Compared, limits: Bounds, states: list[State]) -> tuple[WindowResult, ...]:
    sign = compared.sign
    return tuple(
        WindowResult(
            compared.spec.metric,
            first,
            last,
            sign * float(compared.run[i]),
            sign * float(limits.mean[i]),
            float(limits.deviation[i]),
            sign * float(limits.mean[i] - limits.half[i]),
            float(limits.smallest[i]),
            states[i],
        )
        for i, (first, last) in enumerate(compared.windows)
    )


def _numbers(compared: _Compared) -> dict[str, object]:
    return {"reference_gain": compared.gain, "reference_runs": len(compared.seeds)}


def resolution(table: MetricTable, reference: Reference, steps: int) -> CheckResult:
    """Whether the comparison could have seen a loss of `margin` in the last window.

    Without this, a wide spread between reference runs would pass anything.
    """
    spec = reference.metrics.reward
    if len(reference.runs) < 2:
        text = "one reference run: the smallest regression that could be seen is unknown"
        fix = "record at least 5 more reference runs with other seeds (reprise baseline)"
        return CheckResult("resolution", State.UNKNOWN, spec.metric, text, fix, {})
    if (lacking := _without_reward(reference, steps)) is not None:
        return replace(lacking, rule="resolution")
    compared = _compare(table, reference, steps)
    limits = bounds(compared.seeds, ALPHA["reward"])
    smallest = float(limits.smallest[-1])
    margin = spec.margin if spec.margin is not None else _MARGIN_SHARE * compared.gain
    numbers = {"smallest": smallest, "margin": margin, "reference_gain": compared.gain}
    first, last = compared.windows[-1]
    seen = f"over steps {first}-{last} it sees a loss of {number(smallest)} nine times in ten"
    if 0 < smallest <= margin:
        text = f"{seen}; margin {number(margin)}"
        return CheckResult("resolution", State.PASSED, spec.metric, text, "", numbers)
    if margin <= 0:
        text = f"{seen}; the reference runs gain nothing, so learning cannot be told from none"
        fix = "state metrics.reward.margin in reference.toml, or record longer reference runs"
        return CheckResult("resolution", State.UNKNOWN, spec.metric, text, fix, numbers)
    deviation = float(limits.deviation[-1])
    more = needed_runs(deviation, margin, len(compared.windows), ALPHA["reward"])
    text = f"{seen}, which is more than the margin {number(margin)}"
    fix = f"record {more} reference runs or more" if more else "use more steps or larger batches"
    return CheckResult("resolution", State.UNKNOWN, spec.metric, text, fix, numbers)
