"""Honest runs pass, frozen and broken ones fail, what cannot be known is said."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from curves.runs import (
    KL,
    PROBS,
    REWARD,
    STEPS,
    VALID,
    VALIDATION,
    Records,
    records,
    write,
    write_curve,
    write_reference,
)
from reprise.core.errors import OperatorError
from reprise.core.findings import State
from reprise.core.project import find_project
from reprise.curves import Judgement, Outcome, judge_run, load_reference
from reprise.curves.judge import JudgeOptions, ValidationSet
from reprise.metrics import read_run


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reference(tmp_path_factory.mktemp("eight") / "reference", 8)


def judge(folder: Path, rows: Records, reference: Path, expected: int = STEPS) -> Judgement:
    run = write(folder / "run.jsonl", rows)
    return judge_run(read_run(run), load_reference(reference), expected)


def state(judgement: Judgement, rule: str) -> State:
    return judgement.check(rule).state


@pytest.mark.parametrize("seeds", [6, 8])
def test_honest_seeds_pass_and_frozen_actors_fail(tmp_path: Path, seeds: int) -> None:
    reference = write_reference(tmp_path / "reference", seeds)
    for seed in range(100, 120):
        honest = judge(tmp_path, records(seed), reference)
        assert honest.outcome is Outcome.PASS, honest.text()
        frozen = judge(tmp_path, records(seed, rate=0.0), reference)
        assert frozen.outcome is Outcome.FAIL, frozen.text()
        assert state(frozen, "reward") is State.FAILED


def test_half_the_speed_fails_against_five(tmp_path: Path) -> None:
    reference = write_reference(tmp_path / "reference", 5)
    found = [judge(tmp_path, records(seed, rate=0.5), reference).outcome for seed in range(60, 80)]
    assert Outcome.PASS not in found
    assert found.count(Outcome.FAIL) >= 18


def test_half_the_speed_never_passes_where_it_is_not_excluded(tmp_path: Path) -> None:
    """Eight seeds whose speeds differ widely: what is within the bounds is not therefore good."""
    reference = write_reference(tmp_path / "reference", 8)
    for seed in range(1, 9):
        rate = 1.15 if seed % 2 else 0.9
        write(reference / f"seed-{seed}.jsonl", records(seed, rate=rate))
    slow = [judge(tmp_path, records(seed, rate=0.55), reference) for seed in range(60, 80)]
    assert all(one.outcome is not Outcome.PASS for one in slow)
    within = [one.check("reward") for one in slow if state(one, "reward") is State.UNKNOWN]
    assert within
    for check in within:
        assert "half the speed" in check.message and "further seeds" in check.fix, check
        assert check.numbers["not_excluded_below"] >= check.numbers["excluded_drop"] > 0


def test_a_stated_margin_is_excluded_by_the_run_itself(tmp_path: Path, eight: Path) -> None:
    """The comparison resolves 0.17, yet a run that is 0.09 lower may have lost as much."""
    reference = load_reference(eight)
    options = JudgeOptions(margin=0.17)
    for drop, expected in ((0.0, State.PASSED), (0.09, State.UNKNOWN)):
        rows = [
            (step, data | ({REWARD: data[REWARD] - drop} if step else {}))
            for step, data in records(61)
        ]
        table = read_run(write(tmp_path / "run.jsonl", rows))
        found = judge_run(table, reference, STEPS, options=options)
        assert found.check("resolution").state is State.PASSED, found.text()
        assert state(found, "reward") is expected, found.text()


def test_a_drop_below_what_can_be_seen_is_named(tmp_path: Path, eight: Path) -> None:
    """0.05 at the end, where eight runs cannot see as little: a stated margin says so."""
    rows = [
        (step, data | ({REWARD: data[REWARD] - 0.05} if step else {})) for step, data in records(61)
    ]
    table, reference = read_run(write(tmp_path / "run.jsonl", rows)), load_reference(eight)
    found = judge_run(table, reference, STEPS, options=JudgeOptions(margin=0.05))
    resolution = found.check("resolution")
    assert found.outcome is not Outcome.PASS
    assert resolution.state is State.UNKNOWN
    assert "margin 0.05" in resolution.message and resolution.numbers["smallest"] > 0.05


def test_exit_codes_and_numbers_reach_the_report(tmp_path: Path, eight: Path) -> None:
    judgement = judge(tmp_path, records(200), eight)
    report = judgement.report("curves compare")
    assert (report.exit_code, judgement.exit_code) == (0, 0)
    window = judgement.check("reward").windows[3]
    assert (window.first, window.last) == (31, 40)
    assert window.bound < window.reference < window.bound + window.smallest
    assert f"{window.smallest:.4g} in the last window" in judgement.smallest
    failed = judge(tmp_path, records(200, rate=0.0), eight).report("curves compare")
    assert failed.exit_code == 1
    assert all(finding.fix for finding in failed.errors())


def test_a_run_that_is_cut_short_is_not_judged_whole(tmp_path: Path, eight: Path) -> None:
    judgement = judge(tmp_path, records(201)[:31], eight)
    assert judgement.outcome is Outcome.INCONCLUSIVE
    assert "10 of 40 steps are missing: 31-40" in judgement.check("complete").message
    assert state(judgement, "reward") is State.UNKNOWN
    assert judgement.report("x").exit_code == 2


def test_a_short_run_that_does_not_learn_fails_on_what_it_has(tmp_path: Path, eight: Path) -> None:
    judgement = judge(tmp_path, records(202, rate=0.0)[:31], eight)
    assert judgement.outcome is Outcome.FAIL
    assert judgement.check("reward").where == f"{REWARD}@21-30"


def test_a_reference_without_reward_cannot_judge_it(tmp_path: Path) -> None:
    reference = load_reference(write_curve(tmp_path / "loss.csv", "actor/loss", {1: 0.1, 2: 0.2}))
    run = read_run(write(tmp_path / "run.jsonl", records(1)))
    judgement = judge_run(run, reference, STEPS)
    assert judgement.outcome is Outcome.INCONCLUSIVE
    assert "has no finite critic/rewards/mean" in judgement.check("reward").message


def test_steps_that_nobody_stated_are_refused(tmp_path: Path, eight: Path) -> None:
    with pytest.raises(OperatorError, match="positive number of steps"):
        judge(tmp_path, records(1), eight, expected=0)


def test_two_reference_runs_are_too_few_but_no_crash(tmp_path: Path) -> None:
    reference = write_reference(tmp_path / "reference", 2)
    judgement = judge(tmp_path, records(100), reference)
    assert judgement.outcome is Outcome.INCONCLUSIVE
    assert "2 reference runs do not show" in judgement.check("resolution").message
    assert "--margin" in judgement.check("resolution").fix


def test_too_few_steps_of_the_reference(tmp_path: Path, eight: Path) -> None:
    judgement = judge(tmp_path, records(203)[:14], eight, expected=13)
    assert state(judgement, "complete") is State.PASSED
    assert "insufficient overlap (13/40" in judgement.check("reward").message
    assert judgement.outcome is Outcome.INCONCLUSIVE


def test_a_missing_step_is_named(tmp_path: Path, eight: Path) -> None:
    judgement = judge(tmp_path, [r for r in records(204) if r[0] != 17], eight)
    assert judgement.check("complete").where == f"{REWARD}@17"
    assert judgement.outcome is Outcome.INCONCLUSIVE


def test_a_missing_metric_is_unknown_and_names_the_nearest(tmp_path: Path, eight: Path) -> None:
    rows = [(s, {k.replace("rewards", "reward"): v for k, v in d.items()}) for s, d in records(205)]
    judgement = judge(tmp_path, rows, eight)
    assert judgement.outcome is Outcome.INCONCLUSIVE
    assert "critic/reward/mean" in judgement.check("complete").message
    without_kl = [(s, {k: v for k, v in d.items() if k != KL}) for s, d in records(205)]
    assert state(judge(tmp_path, without_kl, eight), "kl") is State.UNKNOWN


def test_nan_collapse_is_told_in_order(tmp_path: Path, eight: Path) -> None:
    rows = records(206)
    for step, data in rows:
        data["unused"] = math.nan
        if step >= 24:
            data["actor/grad_norm"] = math.nan
        if step >= 25:
            data |= {REWARD: -1.0, "response_length/clip_ratio": 1.0}
        if step >= 26:
            data["actor/pg_loss"] = math.nan
    judgement = judge(tmp_path, rows, eight)
    check = judgement.check("finite")
    assert judgement.outcome is Outcome.FAIL
    assert check.where == "actor/grad_norm@24"
    assert check.numbers["last_good_step"] == 23
    assert [event[:2] for event in check.numbers["events"]] == [
        [24, "actor/grad_norm"],
        [25, REWARD],
        [25, "response_length/clip_ratio"],
    ]
    assert check.numbers["never_finite"] == ["unused", "actor/pg_loss"]


def test_loss_that_turns_nan_is_an_event(tmp_path: Path, eight: Path) -> None:
    rows = records(206)
    for step, data in rows[1:]:
        data["actor/pg_loss"] = math.nan if step >= 26 else 0.01
        data["timing_s/x"] = math.nan if step == 7 else 1.0
    check = judge(tmp_path, rows, eight).check("finite")
    assert check.state is State.FAILED
    assert check.numbers["broken"] == ["actor/pg_loss"]
    assert check.numbers["isolated"] == ["timing_s/x"]


def test_a_metric_unused_from_the_start_does_not_alarm(tmp_path: Path, eight: Path) -> None:
    rows = [(s, d | {"critic/unused": math.nan}) for s, d in records(207)]
    assert judge(tmp_path, rows, eight).outcome is Outcome.PASS


def test_larger_mismatch_than_any_seed_fails(tmp_path: Path, eight: Path) -> None:
    judgement = judge(tmp_path, records(208, mismatch=3.0), eight)
    assert state(judgement, "probs-diff") is State.FAILED
    assert state(judgement, "kl") is State.FAILED
    assert state(judgement, "reward") is State.PASSED
    smaller = judge(tmp_path, records(208, mismatch=0.1), eight)
    assert smaller.outcome is Outcome.PASS
    assert "under a fifth" in " ".join(note.message for note in smaller.all_notes())


def probs(tmp_path: Path, values: list[float], eight: Path) -> Judgement:
    rows = records(209)
    for (_, data), value in zip(rows[1:], values, strict=True):
        data |= {PROBS: value, "training/rollout_probs_diff_max": 0.99}
    return judge(tmp_path, rows, eight)


def test_growing_probs_diff_names_the_first_lasting_step(tmp_path: Path, eight: Path) -> None:
    values = [3e-3] * 20 + [min(3e-3 + 1e-3 * i, 0.0155) for i in range(1, 21)]
    values[33:] = [v + 1e-4 * i for i, v in enumerate(values[33:])]
    values[6] = 0.02
    check = probs(tmp_path, values, eight).check("probs-diff-ceiling")
    assert check.state is State.FAILED
    assert check.numbers["tail_slope"] > 0
    assert check.where == f"{PROBS}@33"
    assert "isolated spike 0.02" in check.notes[0].message


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ((0.016, 0.012, 0.010, 0.008), State.PASSED),
        ((0.010, 0.011, 0.012, 0.013), State.FAILED),
        ((0.012, 0.012, 0.012, 0.011), State.UNKNOWN),
        ((0.016, 0.016, 0.010, 0.008), State.FAILED),
    ],
)
def test_a_stated_decay_has_to_be_seen(
    tmp_path: Path, levels: tuple[float, ...], expected: State
) -> None:
    reference = write_reference(tmp_path / "reference", 2)
    toml = reference / "reference.toml"
    stated = "ceiling = 0.015\nshare_above = 0.3\ndecay = true"
    toml.write_text(toml.read_text(encoding="utf-8").replace("ceiling = 0.015", stated))
    rows = records(209)
    for step, data in rows[1:]:
        data[PROBS] = levels[(step - 1) // 10]
    assert state(judge(tmp_path, rows, reference), "probs-diff-ceiling") is expected
    few = judge(tmp_path, rows[:6], reference, expected=5)
    assert state(few, "probs-diff-ceiling") is not State.PASSED
    unfinished = judge(tmp_path, rows[:13], reference)
    assert state(unfinished, "probs-diff-ceiling") is State.UNKNOWN


def test_invalid_rows_of_probs_diff_do_not_count(tmp_path: Path, eight: Path) -> None:
    rows = records(210)
    for step, data in rows[1:]:
        if step in (5, 6, 7):
            data |= {PROBS: 0.5, VALID: 0.0}
    judgement = judge(tmp_path, rows, eight)
    assert judgement.check("probs-diff-ceiling").numbers["steps_above"] == 0
    assert judgement.outcome is Outcome.PASS


def test_validation_that_stays_behind_fails(tmp_path: Path, eight: Path) -> None:
    rows = records(211)
    for _, data in rows:
        data.update({VALIDATION: 0.3} if VALIDATION in data else {})
    judgement = judge(tmp_path, rows, eight)
    assert state(judgement, "validation") is State.FAILED
    assert state(judgement, "reward") is State.PASSED


def test_missing_last_validation_is_a_note(tmp_path: Path, eight: Path) -> None:
    rows = records(212)
    del rows[-1][1][VALIDATION]
    judgement = judge(tmp_path, rows, eight)
    assert judgement.outcome is Outcome.PASS
    assert f"{VALIDATION}@40" in [note.where for note in judgement.all_notes()]


def test_same_average_under_another_key(tmp_path: Path) -> None:
    grouped = VALIDATION.replace("mean@1", "mean@32")
    reference = write_reference(tmp_path / "reference", 1)
    text = (reference / "reference.toml").read_text(encoding="utf-8").replace(VALIDATION, grouped)
    (reference / "reference.toml").write_text(text)
    seed = reference / "seed-1.jsonl"
    seed.write_text(seed.read_text(encoding="utf-8").replace(VALIDATION, grouped))
    rows = [(s, d | {"val-aux/toy/score/mean@1": -0.5}) for s, d in records(213)]
    run, known = read_run(write(tmp_path / "run.jsonl", rows)), load_reference(reference)
    paired = judge_run(run, known, STEPS, ValidationSet(960, 30, 1))
    assert paired.check("validation").where == f"{VALIDATION}@30-40"
    assert "30 prompts, 960 rows" in " ".join(note.message for note in paired.notes)
    for other in (ValidationSet(30, 30, 1), None):
        alone = judge_run(run, known, STEPS, other).check("validation")
        assert alone.where == grouped
        assert alone.state is State.UNKNOWN
    assert (
        "noisier"
        in judge_run(run, known, STEPS, ValidationSet(30, 30, 1)).check("validation").message
    )


def test_seeds_too_wide_for_a_pass(tmp_path: Path) -> None:
    reference = write_reference(tmp_path / "reference", 3)
    judgement = judge(tmp_path, records(214), reference)
    check = judgement.check("resolution")
    assert check.numbers["smallest"] > 0
    toml = reference / "reference.toml"
    toml.write_text(
        toml.read_text(encoding="utf-8").replace("windows = 4", "windows = 4\nmargin = 0.001")
    )
    judgement = judge(tmp_path, records(214), reference)
    assert state(judgement, "resolution") is State.UNKNOWN
    assert judgement.outcome is Outcome.INCONCLUSIVE


def test_repeating_a_reference_seed_is_said(tmp_path: Path, eight: Path) -> None:
    run = read_run(write(tmp_path / "run.jsonl", records(300)))
    judgement = judge_run(run, load_reference(eight), STEPS, seed=3)
    said = " ".join(note.message for note in judgement.notes)
    assert "seed 3 is among the reference runs" in said


def test_a_copy_of_a_reference_run_is_judged_by_the_others(tmp_path: Path, eight: Path) -> None:
    judgement = judge(tmp_path, records(3), eight)
    assert judgement.reference_runs == 7
    assert "seed-3.jsonl, step by step: judged by the other 7" in " ".join(
        note.message for note in judgement.notes
    )
    alone = judge(tmp_path, records(3), eight / "seed-3.jsonl")
    assert alone.outcome is Outcome.INCONCLUSIVE
    assert state(alone, "same-run") is State.UNKNOWN


def line(noise_seed: int, steps: int = 60, stop: int = 60, late: int = 0) -> dict[int, float]:
    """Reward -0.5 + 0.012 a step with noise 0.03; flat from `stop` on, `late` steps behind."""
    rng = np.random.default_rng(noise_seed)
    ideal = {s: -0.5 + 0.012 * min(max(s - late, 0), stop) for s in range(1, steps + 1)}
    return {step: value + float(rng.normal(0, 0.03)) for step, value in ideal.items()}


@pytest.mark.parametrize("noise", range(5))
def test_against_one_run_only_gross_loss_is_evidence(tmp_path: Path, noise: int) -> None:
    reference = load_reference(write_curve(tmp_path / "ref.csv", REWARD, line(100 + noise)))

    def against(values: dict[int, float]) -> Judgement:
        run = read_run(write_curve(tmp_path / "run.csv", REWARD, values))
        return judge_run(run, reference, 60)

    same = against(line(noise))
    assert same.outcome is Outcome.INCONCLUSIVE
    assert same.check("reward").state is not State.FAILED
    assert "borrowed" in same.check("resolution").message
    worse = against(line(noise, stop=30))
    assert worse.outcome is Outcome.FAIL
    assert 25 <= worse.check("reward").numbers["parting_step"] <= 40
    shifted = against(line(noise, late=5))
    assert shifted.outcome is Outcome.INCONCLUSIVE
    assert shifted.check("reward").numbers["lag"] in (4, 5, 6)
    short = against(line(noise, steps=20))
    assert short.outcome is Outcome.INCONCLUSIVE
    assert "insufficient overlap (20/60" in short.check("reward").message


def test_two_samples_of_one_history_agree(tmp_path: Path) -> None:
    steps = [step for step in range(3, 1000) if step % 7 not in (0, 3)]
    one = {s: -0.5 + s / 1000 for s in steps[::2]}
    two = {s: -0.5 + s / 1000 for s in steps[1::2]}
    assert not set(one) & set(two)
    reference = load_reference(write_curve(tmp_path / "two.csv", REWARD, two))
    judgement = judge_run(read_run(write_curve(tmp_path / "one.csv", REWARD, one)), reference, 999)
    assert judgement.outcome is Outcome.INCONCLUSIVE
    for window in judgement.check("reward").windows:
        assert abs(window.run - window.reference) < 0.002
    assert "looks sampled" in judgement.check("complete").message


def test_a_lag_against_several_seeds_is_left_open(tmp_path: Path) -> None:
    folder = tmp_path / "reference"
    text = 'schema = 1\nrecipe = "toy"\nsteps = 60\n[metrics.reward]\n[provenance]\n'
    for seed in range(6):
        write_curve(folder / f"seed-{seed}.csv", REWARD, line(seed))
        text += f'[[runs]]\nfile = "seed-{seed}.csv"\n'
    (folder / "reference.toml").write_text(text)
    run = write_curve(tmp_path / "run.csv", REWARD, line(50, late=6))
    check = judge_run(read_run(run), load_reference(folder), 60).check("reward")
    assert check.state is State.UNKNOWN
    assert check.numbers["lag"] in (5, 6, 7)


def test_steps_that_the_run_lacks_are_not_counted_as_compared(tmp_path: Path) -> None:
    source = find_project().recipes / "rehearsal/reference" / "seed-101.jsonl"
    lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
    short = tmp_path / "short.jsonl"
    short.write_text("".join(lines[: len(lines) // 2]), encoding="utf-8")
    table = read_run(short)
    last = int(table.training_steps()[-1])
    judgement = judge_run(table, load_reference(source.parent), 40)
    assert judgement.compared_steps == last < 40
    assert f"{last} of 40 steps compared" in judgement.text()
