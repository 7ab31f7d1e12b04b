"""Real curves with one plain fault each, and honest runs: the right answer for both."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from curves.runs import KL, PROBS, REWARD, write
from reprise.core.findings import State
from reprise.curves import Judgement, Outcome, judge_run, load_reference
from reprise.curves.judge import JudgeOptions
from reprise.curves.reference import Reference
from reprise.metrics import read_run

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes/rehearsal"
REFERENCES = ("reference", "reference-gpu-fsdp", "reference-gpu-megatron")
HONEST = {
    "reference-gpu-fsdp": ROOT / "benchmarks/gpu/runs/fsdp-1.jsonl",
    "reference-gpu-megatron": ROOT / "benchmarks/gpu/runs/megatron-1.jsonl",
}
ACCURACY = "val-core/reprise/arithmetic/acc/mean@1"
Data = dict[str, float]
Fault = Callable[[int, Data], Data]


def loaded(name: str) -> Reference:
    return load_reference(RECIPE / name)


def without(reference: Reference, *indices: int) -> Reference:
    kept = [i for i in range(len(reference.runs)) if i not in indices]
    return replace(
        reference,
        runs=tuple(reference.runs[i] for i in kept),
        seeds=tuple(reference.seeds[i] for i in kept),
    )


def edited(tmp_path: Path, file: Path, fault: Fault) -> Path:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return write(tmp_path / "run.jsonl", [(r["step"], fault(r["step"], r["data"])) for r in lines])


def scaled(metric: str, factor: float) -> Fault:
    return lambda _, data: data | ({metric: data[metric] * factor} if metric in data else {})


def shifted(metric: str, by: float) -> Fault:
    return lambda _, data: data | ({metric: data[metric] + by} if metric in data else {})


def held(values: Data, first: int) -> Fault:
    return lambda step, data: data | (values if step >= first and REWARD in data else {})


def length_hack(step: int, data: Data) -> Data:
    if REWARD not in data:
        return data
    longer = 1 + step / 10
    tokens = data["perf/total_num_tokens"] * (8 + 3 * longer) / 11
    hacked = {"response_length/mean": data["response_length/mean"] * longer}
    return data | hacked | {"perf/total_num_tokens": tokens, REWARD: min(1.0, data[REWARD] + 0.05)}


FAULTS: dict[str, tuple[Fault, str]] = {
    "reward x 100": (scaled(REWARD, 100), "guard-reward-range"),
    "reward x 10": (scaled(REWARD, 10), "guard-reward-range"),
    "reward negated": (scaled(REWARD, -1), "guard-reward-range"),
    "entropy 0": (held({"actor/entropy": 0.0}, 11), "guard-entropy"),
    "entropy collapses": (held({"actor/entropy": 0.002}, 11), "guard-entropy"),
    "entropy x 10": (held({"actor/entropy": 4.0}, 11), "guard-entropy"),
    "grad norm 0": (held({"actor/grad_norm": 0.0}, 11), "guard-grad-norm"),
    "grad norm x 1e4": (scaled("actor/grad_norm", 1e4), "guard-grad-norm"),
    "clipped": (
        held({"response_length/clip_ratio": 1.0, "response_length/mean": 8.0}, 15),
        "guard-clip-ratio",
    ),
    "length hack": (length_hack, "guard-length"),
    "aborted": (held({"response/aborted_ratio": 0.3}, 11), "guard-aborted"),
    "half the samples": (scaled("perf/total_num_tokens", 0.5), "guard-samples"),
    "KL x 100": (scaled(KL, 100), "kl"),
    "probs diff x 2.5": (scaled(PROBS, 2.5), "probs-diff"),
    "validation -0.2": (shifted(ACCURACY, -0.2), "validation"),
    "validation -0.6": (shifted(ACCURACY, -0.6), "validation"),
}


def judged(run: Path, reference: Reference) -> Judgement:
    table = read_run(run)
    steps = min(int(table.training_steps()[-1]), reference.steps)
    return judge_run(table, reference, steps)


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_plainly_broken_run_fails_where_it_is_broken(
    tmp_path: Path, fault: str, name: str
) -> None:
    edit, rule = FAULTS[fault]
    reference = loaded(name)
    for seed in (0, 3):
        run = edited(tmp_path, RECIPE / name / f"seed-{reference.seeds[seed]}.jsonl", edit)
        found = judged(run, without(reference, seed))
        assert found.outcome is Outcome.FAIL, found.text()
        assert found.check(rule).state is State.FAILED, found.text()


@pytest.mark.parametrize("name", REFERENCES)
def test_no_honest_seed_fails_when_left_out(name: str) -> None:
    reference = loaded(name)
    for index in range(len(reference.runs)):
        found = judge_run(reference.runs[index], reference, reference.steps)
        assert found.reference_runs == 4
        assert found.outcome is not Outcome.FAIL, found.text()
    if name in HONEST:
        assert judged(HONEST[name], reference).outcome is Outcome.PASS


@pytest.mark.parametrize("name", REFERENCES)
def test_no_honest_pair_of_seeds_fails(name: str) -> None:
    reference = loaded(name)
    for index, run in enumerate(reference.runs):
        for other in set(range(len(reference.runs))) - {index}:
            alone = without(reference, *(i for i in range(5) if i != other))
            found = judge_run(run, alone, reference.steps)
            assert found.outcome is Outcome.INCONCLUSIVE, found.text()


def test_half_of_the_steps_is_said(tmp_path: Path) -> None:
    reference = loaded("reference")
    file = RECIPE / "reference/seed-101.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    run = write(tmp_path / "run.jsonl", [(r["step"], r["data"]) for r in rows if r["step"] <= 20])
    found = judged(run, without(reference, 0))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "length: 20 steps (reference 40)" in found.check("comparable").message
    accepted = JudgeOptions(accepted=("length",))
    short = judge_run(read_run(run), without(reference, 0), 20, options=accepted)
    assert short.check("comparable").state is State.PASSED


def test_the_margin_is_the_users(tmp_path: Path) -> None:
    reference = without(loaded("reference"), 0)
    file = edited(tmp_path, RECIPE / "reference/seed-101.jsonl", shifted(REWARD, -0.01))
    small = judge_run(read_run(file), reference, 40, options=JudgeOptions(margin=0.15))
    assert small.outcome is Outcome.INCONCLUSIVE
    assert "further seeds" in small.check("resolution").fix
    large = judge_run(read_run(file), reference, 40, options=JudgeOptions(margin=0.3))
    assert large.outcome is Outcome.PASS, large.text()


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (f"max({KL}) < 1", State.PASSED),
        (f"max({KL}) < 1e-9", State.FAILED),
        (f"steps_to({REWARD}, 0.8) <= 40", State.PASSED),
        (f"steps_to({REWARD}, 2) <= 40", State.FAILED),
        ("min(no/such) > 0", State.UNKNOWN),
    ],
)
def test_assertions_of_the_user(text: str, state: State) -> None:
    reference = loaded("reference")
    asserted = replace(
        reference, metrics=reference.metrics.model_copy(update={"assertions": [text]})
    )
    found = judge_run(reference.runs[0], asserted, 40)
    assert found.check("assertion").state is state


@pytest.mark.parametrize("name", REFERENCES)
def test_a_stated_factor_is_excluded_or_said(tmp_path: Path, name: str) -> None:
    """Without a factor, twice the probs diff is at the limit of what four seeds detect."""
    reference = loaded(name)
    spec = reference.metrics.probs_diff
    assert spec is not None
    stated = {"probs_diff": spec.model_copy(update={"factor": 2.0})}
    stated_reference = replace(reference, metrics=reference.metrics.model_copy(update=stated))
    for index, seed in enumerate(reference.seeds):
        others = without(stated_reference, index)
        assert judge_run(reference.runs[index], others, reference.steps).outcome is not Outcome.FAIL
        file = RECIPE / name / f"seed-{seed}.jsonl"
        for factor, wanted in ((2.0, {State.FAILED}), (1.5, {State.FAILED, State.UNKNOWN})):
            run = edited(tmp_path, file, scaled(PROBS, factor))
            assert judged(run, others).check("probs-diff").state in wanted
