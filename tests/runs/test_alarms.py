"""Alarms on a run's numbers: raised where they must be, and silent on every recorded run."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from reprise.core.findings import Finding, Severity
from reprise.metrics import read_run
from reprise.runs.watch.alarms import Alarms, AlarmSettings, alarm_settings

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
PROBS = "training/rollout_probs_diff_mean"
REWARD = "critic/rewards/mean"


def told(
    steps: Iterable[tuple[int, Mapping[str, float]]],
    settings: AlarmSettings | None = None,
    saved: tuple[int, ...] = (),
) -> list[tuple[int, Finding]]:
    """(step at which it was told, finding)."""
    alarms = Alarms(settings, lambda: saved)
    return [(step, finding) for step, values in steps for finding in alarms.feed(step, values)]


def series(
    metric: str, values: Iterable[float], first: int = 1
) -> list[tuple[int, dict[str, float]]]:
    return [(step, {metric: value}) for step, value in enumerate(values, start=first)]


def rules(found: list[tuple[int, Finding]], severity: Severity | None = None) -> list[str]:
    return [f.rule for _, f in found if severity is None or f.severity is severity]


RECORDED = sorted((RECIPES / "rehearsal").glob("reference*/*.jsonl"))


@pytest.mark.parametrize(
    "path",
    [*RECORDED, RECIPES / "hy3" / "reference" / "curves.csv"],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_no_recorded_run_raises_an_alarm(path: Path) -> None:
    table = read_run(path)
    curves = [table.series(name) for name in table.names]
    steps: dict[int, dict[str, float]] = {}
    for curve in curves:
        for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
            steps.setdefault(step, {})[curve.metric] = value
    limit = 8 if path in RECORDED else 8192
    found = told(sorted(steps.items()), AlarmSettings(response_limit=limit))
    # The published run crosses 0.015 at step 5 for the first time: worth a note, no more.
    expected = [] if path in RECORDED else [(5, "run-alarm-probs-diff", Severity.NOTE)]
    assert [(step, f.rule, f.severity) for step, f in found] == expected


def test_there_are_recorded_runs() -> None:
    assert len(RECORDED) >= 13


def collapse() -> list[tuple[int, dict[str, float]]]:
    steps = []
    for step in range(100, 111):
        bad = step >= 105
        steps.append(
            (
                step,
                {
                    "actor/grad_norm": math.nan if step >= 104 else 0.3,
                    "actor/pg_loss": math.nan if step >= 106 else 0.01,
                    REWARD: -1.0 if bad else 0.4 + 0.001 * (step - 100),
                    "response_length/mean": 8192.0 if bad else 900.0,
                    "response_length/clip_ratio": 1.0 if bad else 0.01,
                    "critic/vf_loss": math.nan,
                },
            )
        )
    return steps


def test_the_order_of_a_collapse_is_told() -> None:
    found = told(collapse(), saved=(80, 100, 104, 120))
    assert [(step, f.where) for step, f in found] == [
        (104, "actor/grad_norm@104"),
        (106, "actor/pg_loss@106"),
        (107, f"{REWARD}@105"),
        (107, "response_length/clip_ratio@105"),
    ]
    first, loss, reward, clip = (finding for _, finding in found)
    assert "last good step 103" in first.message
    assert "last good step 103" in loss.message
    # What was saved after the first NaN is no way back, whatever broke later.
    assert all("checkpoint of step 100" in finding.fix for _, finding in found)
    assert "before it: actor/grad_norm NaN at step 104" in loss.message
    assert "before it: actor/grad_norm NaN at step 104)" in reward.message
    assert "reward floor at step 105" in clip.message
    assert {f.severity for _, f in found} == {Severity.ERROR}


def test_a_gradient_that_was_skipped_once_is_forgotten() -> None:
    good = {"actor/grad_norm": 0.3, REWARD: 0.4}
    steps = [(step, good) for step in range(1, 10)]
    steps[2] = (3, good | {"actor/grad_norm": math.nan})
    steps += [(step, good | {REWARD: -1.0}) for step in range(10, 13)]
    found = told(steps, saved=(2, 8))
    assert [f.rule for _, f in found] == ["run-alarm-nan", "run-alarm-reward"]
    assert "checkpoint of step 8" in found[1][1].fix


def test_what_is_nan_from_the_start_is_unused_unless_no_step_can_do_without_it() -> None:
    assert told(series("critic/vf_loss", [math.nan] * 20)) == []
    assert rules(told(series("actor/grad_norm", [math.nan]))) == ["run-alarm-nan"]


def test_a_lone_nan_is_a_note_and_the_third_an_error() -> None:
    values = [1.0, math.nan, 1.0, math.inf, 1.0, math.nan, 1.0]
    found = told(series("perf/mfu/actor", values))
    assert [(step, f.severity) for step, f in found] == [(2, Severity.NOTE), (6, Severity.ERROR)]


def test_many_metrics_that_break_at_once_are_one_alarm() -> None:
    names = ("actor/grad_norm", "actor/loss", "actor/entropy", "rollout_corr/kl")
    good, bad = dict.fromkeys(names, 1.0), dict.fromkeys(names, math.nan)
    found = told([(1, good), (2, bad), (3, bad), (4, bad)])
    assert [(step, f.severity) for step, f in found] == [(2, Severity.ERROR)]
    assert "and 3 more metrics" in found[0][1].message


@pytest.mark.parametrize(
    ("values", "first"),
    [
        ([0.4, 0.5, 0.6, -1.0, -1.0, -1.0], 4),
        ([0.4, 0.5, 0.6, -1.0, -1.0, -0.9], None),
        ([0.4, 0.5, 0.6, 0.9, 0.9, 0.9], None),
        ([0.0] * 20, None),
        ([-1.0, -1.0, 0.2, 0.4, -1.0, -1.0, -1.0], 5),
        ([0.4, 0.5, -1.0, 0.5, 0.2, 0.2, 0.2], None),
        # A sparse reward: now and then an answer is right, as long as nothing is learned.
        ([0.0, 0.0, 0.004, 0.0, 0.0, 0.0, 0.0], None),
        ([0.0] * 30 + [0.1] * 15 + [0.0] * 3, 46),
    ],
)
def test_the_reward_at_its_floor(values: list[float], first: int | None) -> None:
    found = [f for _, f in told(series(REWARD, values))]
    assert [f.where for f in found] == ([f"{REWARD}@{first}"] if first else [])


@pytest.mark.parametrize(("best", "expected"), [(0.0, ["run-alarm-reward"]), (1.0, [])])
def test_the_same_reward_for_every_answer_from_the_start(best: float, expected: list[str]) -> None:
    values = {REWARD: best / 50, "critic/rewards/min": 0.0, "critic/rewards/max": best}
    found = told([(step, values) for step in range(1, 9)])
    assert rules(found) == expected
    assert all(step == 5 and f.severity is Severity.WARNING for step, f in found)


@pytest.mark.parametrize(
    ("tail", "expected"),
    [([0.04] * 3, ["run-alarm-entropy"]), ([0.06] * 9, []), ([0.04, 0.04, 0.06] * 3, [])],
)
def test_entropy(tail: list[float], expected: list[str]) -> None:
    assert rules(told(series("actor/entropy", [1.0] * 5 + tail))) == expected


def growing_probs() -> list[float]:
    """40 steps about 0.003, a spike at 7, growth from 21 on that crosses 0.015 at step 36."""
    values = [0.003 + 0.0002 * (step % 3) for step in range(1, 21)]
    values += [0.003 + (step - 20) * 0.00079 for step in range(21, 41)]
    values[6] = 0.02
    return values


def test_the_probs_diff_that_grows() -> None:
    found = told(series(PROBS, growing_probs()))
    assert [(step, f.rule, f.severity) for step, f in found] == [
        (7, "run-alarm-probs-diff", Severity.NOTE),
        (31, "run-alarm-probs-growth", Severity.WARNING),
        (40, "run-alarm-probs-diff", Severity.ERROR),
    ]
    error = found[-1][1]
    assert error.where == f"{PROBS}@36"
    assert "+0.00079 per step" in error.message
    assert "disable_cascade_attn" in error.fix and "weight sync" in error.fix


@pytest.mark.parametrize(
    ("values", "errors"),
    [
        ([0.031] * 5, 1),  # twice the ceiling from the start: no growth is needed
        ([0.016] * 50, 0),  # a little above, and level
        ([0.003] * 10 + [0.02] * 4 + [0.003] * 10, 0),
        ([0.003] * 10 + [0.02] * 5, 1),
    ],
)
def test_the_ceiling_of_the_probs_diff(values: list[float], errors: int) -> None:
    assert len(rules(told(series(PROBS, values)), Severity.ERROR)) == errors


def test_steps_whose_probs_diff_is_not_valid_do_not_count() -> None:
    steps = [
        (step, {PROBS: value, "training/rollout_probs_diff_valid": float(value < 0.02)})
        for step, value in enumerate([0.003] * 10 + [0.05] * 10, start=1)
    ]
    assert told(steps) == []


def lengths(clip: float, longest: float, mean: float) -> list[tuple[int, dict[str, float]]]:
    values = {
        "response_length/clip_ratio": clip,
        "response_length/max": longest,
        "response_length/mean": mean,
    }
    return [(step, values) for step in range(1, 8)]


@pytest.mark.parametrize(
    ("clip", "longest", "severity"),
    [
        (1.0, 8192, Severity.ERROR),
        (0.6, 8192, Severity.WARNING),
        (0.4, 8192, None),
        # All answers of a batch are equally long, and short: verl's ratio is 1, nothing is cut.
        (1.0, 3, None),
    ],
)
def test_the_length_limit(clip: float, longest: float, severity: Severity | None) -> None:
    found = told(lengths(clip, longest, 5000), AlarmSettings(response_limit=8192))
    assert [f.severity for _, f in found] == ([severity] if severity else [])
    assert [step for step, _ in found] == ([3] if severity else [])


def test_an_attempt_that_trains_steps_again_may_raise_the_same_alarm_again() -> None:
    alarms = Alarms()
    for step, values in collapse():
        alarms.feed(step, values)
    assert alarms.feed(101, {"actor/grad_norm": 0.3, REWARD: 0.4}) == []
    (again,) = alarms.feed(102, {"actor/grad_norm": math.nan, REWARD: 0.4})
    assert again.where == "actor/grad_norm@102"


def test_validation_alone_is_no_step() -> None:
    assert told([(0, {"val-core/x/acc/mean@1": math.nan})]) == []


def test_settings_come_from_the_runs_own_config() -> None:
    config = json.loads('{"data": {"max_response_length": 8192}}')
    assert alarm_settings(config, 0.02) == AlarmSettings(8192, 0.02)
    assert alarm_settings({}) == AlarmSettings(None, 0.015)


def healthy(step: int) -> dict[str, float]:
    wave = 0.02 * math.sin(7.3 * step)
    return {
        REWARD: 0.2 + 0.5 * min(step, 40) / 40 + wave,
        "actor/entropy": 1.0 - 0.015 * min(step, 50) + wave,
        "actor/grad_norm": 1.0 + abs(wave),
        "response_length/mean": 600.0 + 100 * wave,
    }


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda _, data: data | {"actor/entropy": data["actor/entropy"] * 10}, "run-alarm-entropy"),
        (lambda _, data: data | {"actor/grad_norm": 60.0}, "run-alarm-gradient"),
        (lambda _, data: data | {"response_length/mean": 90.0}, "run-alarm-length"),
        (lambda step, data: data | {REWARD: data[REWARD] - (step - 40) * 0.02}, "run-alarm-reward"),
    ],
)
def test_a_collapse_is_told_while_it_happens(change, rule: str) -> None:
    steps = [(step, healthy(step)) for step in range(1, 61)]
    assert told(steps) == []
    broken = [(step, change(step, data) if step > 40 else data) for step, data in steps]
    found = told(broken)
    assert rules(found) == [rule]
    assert 43 <= found[0][0] <= 58


def test_a_spike_is_no_collapse() -> None:
    steps = [(step, healthy(step)) for step in range(1, 61)]
    for step in (20, 30):
        steps[step][1].update({"actor/grad_norm": 500.0, "actor/entropy": 30.0, REWARD: -1.0})
    assert told(steps) == []


@pytest.mark.parametrize(
    "name", ["fsdp-1", "megatron-1", "megatron-101-again", "overlong-read", "cpu-overlong-read"]
)
def test_no_other_good_run_raises_a_collapse(name: str) -> None:
    table = read_run(RECIPES.parent / f"benchmarks/gpu/runs/{name}.jsonl")
    steps: dict[int, dict[str, float]] = {}
    for metric in table.names:
        curve = table.series(metric)
        for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
            steps.setdefault(step, {})[metric] = value
    assert told(sorted(steps.items()), AlarmSettings(response_limit=8)) == []
