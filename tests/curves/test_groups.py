"""Two groups of runs: intervals against SciPy's, the outcomes, and what must not be concluded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from curves.runs import PROBS, REWARD, VALIDATION, Records, records
from reprise.core.findings import State
from reprise.curves.groups import Comparison, GroupOptions, compare_groups
from reprise.curves.groups.columns import Member
from reprise.curves.groups.welch import difference, needed_seeds
from reprise.curves.reference import (
    KlSpec,
    Metrics,
    ProbsDiffSpec,
    RewardSpec,
    ValidationSpec,
    load_reference,
)
from reprise.curves.result import Outcome
from reprise.metrics.rows import Rows

ROOT = Path(__file__).resolve().parents[2]
METRICS = Metrics(
    reward=RewardSpec(windows=4),
    validation=ValidationSpec(metric=VALIDATION),
    probs_diff=ProbsDiffSpec(),
    kl=KlSpec(),
)


def member(rows: Records) -> Member:
    table = Rows("run", attempt=1)
    for step, values in rows:
        table.add_step(step, values)
    return Member(table.table("run"))


def group(seeds: Sequence[int], rate: float = 1.0, mismatch: float = 1.0) -> list[Member]:
    return [member(records(seed, rate, mismatch=mismatch)) for seed in seeds]


def edited(seed: int, change: Callable[[int, dict[str, float]], dict[str, float]]) -> Member:
    return member([(step, change(step, dict(values))) for step, values in records(seed)])


def said(
    a: list[Member], b: list[Member], margin: float | None = None, steps: int = 40
) -> Comparison:
    return compare_groups(a, b, METRICS, steps, GroupOptions(margin))


numbers = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))


@given(
    st.lists(numbers, min_size=3, max_size=9, unique=True),
    st.lists(numbers, min_size=3, max_size=9, unique=True),
    st.sampled_from([0.05, 0.0125, 0.2]),
)
def test_three_runs_a_side_have_welchs_interval(
    a: list[float], b: list[float], alpha: float
) -> None:
    found = difference(np.array(a), np.array(b), alpha)
    known = stats.ttest_ind(b, a, equal_var=False).confidence_interval(1 - alpha)
    assert found.low == pytest.approx(known.low, rel=1e-6, abs=1e-6)
    assert found.high == pytest.approx(known.high, rel=1e-6, abs=1e-6)


@given(
    st.lists(numbers, min_size=2, max_size=9, unique=True),
    st.lists(numbers, min_size=2, max_size=2, unique=True),
)
def test_two_runs_have_the_pooled_interval(a: list[float], b: list[float]) -> None:
    found = difference(np.array(a), np.array(b), 0.05)
    known = stats.ttest_ind(b, a).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((known.low, known.high), rel=1e-6, abs=1e-6)


def test_one_run_has_the_prediction_interval_of_the_others() -> None:
    others = np.array([0.61, 0.64, 0.70, 0.66])
    found = difference(others, np.array([0.5]), 0.05)
    half = stats.t.ppf(0.975, 3) * others.std(ddof=1) * np.sqrt(1 + 1 / 4)
    assert found.value == pytest.approx(0.5 - others.mean())
    assert found.half == pytest.approx(half)
    assert difference(np.array([0.5]), others, 0.05).half == pytest.approx(half)


@pytest.mark.parametrize(("a", "b"), [([0.5], [0.7]), ([1.0, 1.0], [1.0, 1.0, 1.0]), ([0, 0], [1])])
def test_values_without_a_spread_have_no_interval(a: list[float], b: list[float]) -> None:
    found = difference(np.array(a, dtype=float), np.array(b, dtype=float), 0.05)
    assert np.isnan([found.half, found.smallest, found.spread]).all()


def test_the_smallest_difference_is_detected_nine_times_in_ten() -> None:
    values = np.array([-1.0, 0.0, 0.0, 0.0, 1.0])
    shift = difference(values, values, 0.0125).smallest / values.std(ddof=1)
    rng = np.random.default_rng(5)
    a, b = rng.normal(0, 1, (20_000, 5)), rng.normal(0, 1, (20_000, 5))
    error = np.sqrt((a.var(axis=1, ddof=1) + b.var(axis=1, ddof=1)) / 5)
    seen = (b.mean(axis=1) + shift - a.mean(axis=1)) / error > stats.t.ppf(1 - 0.0125 / 2, 8)
    assert 0.88 < seen.mean() < 0.92


def test_needed_seeds_detect_what_they_are_needed_for() -> None:
    runs = needed_seeds(0.05, 0.1, 0.0125)
    assert runs is not None
    for count, enough in ((runs, True), (runs - 1, False)):
        # Values with a standard deviation of exactly 0.05.
        values = np.linspace(-1, 1, count)
        values *= 0.05 / values.std(ddof=1)
        assert (difference(values, values, 0.0125).smallest <= 0.1 + 1e-9) is enough
    assert needed_seeds(0.05, 1e-4, 0.0125) is None


def test_a_faster_group_is_better_and_the_slower_one_worse() -> None:
    slow, fast = group(range(1, 6), rate=0.5), group(range(11, 16))
    better, worse = said(slow, fast), said(fast, slow)
    assert (better.outcome, worse.outcome) == (Outcome.PASS, Outcome.FAIL)
    assert better.report("compare").exit_code == 0
    assert worse.report("compare").exit_code == 1
    deciding = [one for one in better.compared if one.decides]
    assert [one.metric for one in deciding] == [REWARD, REWARD, VALIDATION, VALIDATION]
    assert all(one.answer == "better" and one.low > 0 for one in deciding)


def test_equal_groups_are_not_told_apart() -> None:
    made = said(group(range(1, 6)), group(range(11, 16)))
    assert made.outcome is Outcome.INCONCLUSIVE
    assert made.report("compare").exit_code == 2
    check = made.checks[0]
    assert check.state is State.UNKNOWN and check.fix.startswith("train more seeds: ")
    assert all(one.low < 0 < one.high for one in made.compared if one.decides)


def test_a_margin_that_is_excluded_is_no_improvement() -> None:
    a, b = group(range(1, 6)), group(range(11, 16))
    assert said(a, b, margin=0.3).outcome is Outcome.FAIL
    assert said(a, b, margin=0.001).outcome is Outcome.INCONCLUSIVE
    better = said(group(range(1, 6), rate=0.5), b, margin=1.5)
    # Differences below what counts are none.
    assert {one.answer for one in better.compared if one.decides} == {"no difference"}
    assert better.outcome is Outcome.FAIL


def test_the_seeds_that_are_needed_are_those_of_what_is_open() -> None:
    a, b = (
        load_reference(ROOT / f"recipes/rehearsal/reference-gpu-{engine}")
        for engine in ("fsdp", "megatron")
    )
    sides = [[Member(table) for table in side.runs] for side in (a, b)]
    made = compare_groups(sides[0], sides[1], a.metrics, a.steps, GroupOptions(0.05))
    answers = {f"{one.metric}@{one.first}-{one.last}": one for one in made.compared if one.decides}
    assert {one.answer for one in answers.values()} == {"inconclusive", "no difference"}
    (check,) = made.checks
    left = [where for where, one in answers.items() if one.answer == "inconclusive"]
    assert check.where == left[0] and all(where in check.message for where in left)
    assert REWARD not in check.message and "difference of 0.05" in check.fix
    # The smallest difference that five runs see is twice the margin at most: four times the runs.
    seeds = int(check.fix.split("about ")[1].split()[0])
    assert 5 < seeds <= 5 * (answers[left[0]].smallest / 0.05) ** 2 + 1
    assert answers[left[0]].smallest > 0.05


def test_one_run_a_side_concludes_nothing() -> None:
    made = said(group([1]), group([2], rate=0.0))
    assert made.outcome is Outcome.INCONCLUSIVE
    assert "one run a side" in made.checks[0].message
    assert {one.answer for one in made.compared} == {"unknown"}
    assert all(row["low"] is None for row in made.to_json()["metrics"])
    assert "no difference visible" not in made.text()


def test_one_run_against_several_is_compared() -> None:
    assert said(group(range(1, 6)), group([9], rate=0.0)).outcome is Outcome.FAIL
    assert said(group(range(1, 6)), group([9])).outcome is Outcome.INCONCLUSIVE


def test_a_better_reward_with_a_possible_loss_of_validation_is_open() -> None:
    def memorises(step: int, values: dict[str, float]) -> dict[str, float]:
        if VALIDATION in values and step:
            values[VALIDATION] += rng.normal(-0.02, 0.2)
        values |= {REWARD: values[REWARD] + 0.2} if REWARD in values else {}
        return values

    rng = np.random.default_rng(3)
    made = said(group(range(1, 5)), [edited(seed, memorises) for seed in range(11, 15)])
    assert made.outcome is Outcome.INCONCLUSIVE
    assert made.checks[0].message.startswith("B is better elsewhere")
    assert VALIDATION in made.checks[0].message


def test_a_worse_validation_outweighs_a_better_reward() -> None:
    def memorises(step: int, values: dict[str, float]) -> dict[str, float]:
        shifts = {REWARD: 0.2, VALIDATION: -0.2}
        return {name: value + shifts.get(name, 0.0) for name, value in values.items()}

    made = said(group(range(1, 6)), [edited(seed, memorises) for seed in range(11, 16)])
    assert made.outcome is Outcome.FAIL
    answers = {one.metric: one.answer for one in made.compared}
    assert (answers[REWARD], answers[VALIDATION]) == ("better", "worse")


def test_a_lower_loss_is_better_where_the_direction_says_so() -> None:
    down = METRICS.model_copy(update={"reward": RewardSpec(windows=4, direction="down")})
    slow, fast = group(range(1, 6), rate=0.5), group(range(11, 16))
    made = compare_groups(fast, slow, down.model_copy(update={"validation": None}), 40)
    assert made.outcome is Outcome.PASS
    assert all(one.high < 0 and one.answer == "better" for one in made.compared if one.decides)


def test_missing_steps_are_unknown_and_named() -> None:
    cut = [member(records(seed)[:30]) for seed in (11, 12)] + group([13])
    made = said(group(range(1, 4)), cut)
    assert made.outcome is Outcome.INCONCLUSIVE
    window = made.compared[0]
    assert (window.answer, window.reason) == ("unknown", "2 of 3 runs of B have too few values")
    assert np.isnan(window.low)


def test_a_missing_validation_is_unknown_and_named() -> None:
    def without(step: int, values: dict[str, float]) -> dict[str, float]:
        return {name: value for name, value in values.items() if name != VALIDATION}

    made = said(group(range(1, 4), rate=0.5), [edited(seed, without) for seed in range(11, 14)])
    assert made.outcome is Outcome.INCONCLUSIVE
    assert VALIDATION in made.checks[0].fix


def test_a_change_of_the_mismatch_is_noted_and_does_not_decide() -> None:
    made = said(group(range(1, 6)), group(range(11, 16), mismatch=3.0))
    probs = [one for one in made.compared if one.metric == PROBS]
    assert all(one.ratio and one.answer == "worse" and 2 < one.low < 3.2 for one in probs)
    assert made.outcome is Outcome.INCONCLUSIVE
    notes = [note.where for note in made.checks[0].notes]
    assert any(where.startswith(PROBS) for where in notes)


def test_metrics_that_are_not_measured_alike_decide_nothing() -> None:
    slow, fast = group(range(1, 6), rate=0.5), group(range(11, 16))
    reason = ((REWARD, "another reward"), (VALIDATION, "another set"))
    made = compare_groups(slow, fast, METRICS, 40, GroupOptions(unlike=reason))
    assert made.outcome is Outcome.INCONCLUSIVE
    assert not any(one.decides for one in made.compared)
    made = compare_groups(slow, fast, METRICS, 40, GroupOptions(unlike=reason[:1]))
    assert made.outcome is Outcome.PASS
    assert [one.metric for one in made.compared if one.decides] == [VALIDATION, VALIDATION]
