"""What came back from the card, held against the planner and the verdict as they are now."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from reprise.core.errors import CannotTell
from reprise.curves.judge import JudgeOptions, judge_run
from reprise.curves.reference import load_reference

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "benchmarks/gpu"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"gpu_{name}", HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def planner() -> ModuleType:
    return module("planner")


@pytest.fixture(scope="module")
def verdicts() -> ModuleType:
    return module("verdicts")


def test_every_measured_peak_is_planned_within_a_tenth(planner: ModuleType) -> None:
    rows = list(planner.rows(json.loads((HERE / "measured.json").read_text(encoding="utf-8"))))
    assert len({row["size"] for row in rows}) >= 6
    assert {row["engine"] for row in rows} == {"fsdp", "megatron"}
    assert {row["variant"] for row in rows} == {"plain", "recompute", "recompute+offload"}
    far = [(r["size"], r["engine"], r["variant"], r["off"]) for r in rows if abs(r["off"]) > 0.1]
    assert far == []


def test_what_the_rollout_held_is_planned_within_a_twentieth(planner: ModuleType) -> None:
    rows = list(planner.served(json.loads((HERE / "measured.json").read_text(encoding="utf-8"))))
    assert len({row["model"] for row in rows}) == 10
    assert {row["tokens"] for row in rows} == {4096, 8192, 16384, 32768}
    assert [(r["model"], r["tokens"], r["off"]) for r in rows if abs(r["off"]) > 0.05] == []


def test_a_config_for_the_card_is_made_with_the_verl_that_runs_there(
    planner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("versions.lock", "runtime_env.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    other = tmp_path / "third_party/verl/verl"
    (other / "trainer/config").mkdir(parents=True)
    (other / "trainer/config/ppo_trainer.yaml").touch()
    (other / "version").mkdir()
    (other / "version/version").write_text("0.9.0\n")
    monkeypatch.setattr(planner, "ROOT", tmp_path)
    with pytest.raises(CannotTell, match="expected verl"):
        planner.inputs(tmp_path / "out")
    assert not list((tmp_path / "out").glob("config-*.json"))


def test_offload_does_not_lower_the_peak(planner: ModuleType) -> None:
    rows = list(planner.rows(json.loads((HERE / "measured.json").read_text(encoding="utf-8"))))
    peaks = {(r["size"], r["engine"], r["variant"]): r["measured"] for r in rows}
    compared = 0
    for (size, engine, variant), measured in peaks.items():
        if variant == "recompute+offload":
            plain = peaks[size, engine, "recompute"]
            here, there = measured["peak_forward_backward"], plain["peak_forward_backward"]
            assert here == pytest.approx(there, rel=0.01)
            assert measured["offloaded"]["allocated"] < 0.1 * here
            compared += 1
    assert compared >= 6


def judged(verdicts: ModuleType, name: str, other: str) -> str:
    engine, file, seed = next(row[1:] for row in verdicts.runs() if row[0] == name)
    reference = load_reference(verdicts.REFERENCES[other])
    if other == f"gpu/{engine}":
        reference = verdicts.without(reference, seed)
    rows = verdicts.table(file)
    steps = min(int(rows.training_steps().max()), reference.steps)
    options = JudgeOptions(accepted=("length",))
    return str(judge_run(rows, reference, steps, options=options).outcome.value)


@pytest.mark.parametrize("other", ["gpu/fsdp", "gpu/megatron", "cpu/fsdp"])
@pytest.mark.parametrize("engine", ["fsdp", "megatron"])
def test_honest_seeds_pass_and_a_frozen_actor_fails(
    verdicts: ModuleType, engine: str, other: str
) -> None:
    assert [judged(verdicts, f"{engine}-{seed}", other) for seed in (1, 101, 104)] == ["PASS"] * 3
    assert judged(verdicts, f"frozen-{engine}", other) == "FAIL"


def test_the_same_seed_gave_the_same_values_twice() -> None:
    files = (
        HERE / "runs/megatron-101-again.jsonl",
        ROOT / "recipes/rehearsal/reference-gpu-megatron/seed-101.jsonl",
    )
    first, second = (
        {
            row["step"]: row["data"]
            for row in map(json.loads, file.read_text(encoding="utf-8").splitlines())
        }
        for file in files
    )
    compared = 0
    for step, values in first.items():
        for name, value in values.items():
            if not name.startswith(("timing", "perf/", "actor/perf/")):
                assert second[step][name] == value, (step, name)
                compared += 1
    assert compared > 2000


def test_a_seed_is_not_judged_by_itself(verdicts: ModuleType) -> None:
    whole = load_reference(verdicts.REFERENCES["gpu/megatron"])
    assert whole.seeds == (101, 102, 103, 104, 105)
    others = verdicts.without(whole, 103)
    assert others.seeds == (101, 102, 104, 105)
    assert all(run is not whole.runs[2] for run in others.runs)
    assert verdicts.without(whole, 1).seeds == whole.seeds


@pytest.mark.parametrize("prefix", ["", "cpu-"], ids=["gpu", "cpu"])
def test_the_legacy_reward_keys_do_nothing_and_the_read_ones_what_they_say(prefix: str) -> None:
    found: dict[str, list[tuple[float, float]]] = {}
    for spelling in ("legacy", "read"):
        lines = (
            (HERE / f"runs/{prefix}overlong-{spelling}.jsonl")
            .read_text(encoding="utf-8")
            .splitlines()
        )
        data = [json.loads(line)["data"] for line in lines]
        found[spelling] = [
            (row["critic/rewards/mean"], row["response_length/mean"])
            for row in data
            if "critic/rewards/mean" in row
        ]
    # The first two steps have the same samples: the weights differ from the second update on.
    for (legacy, length), (read, same) in list(zip(*found.values(), strict=True))[:2]:
        assert length == same
        assert read == pytest.approx(legacy - (length - 1) / 7, abs=1e-6)


def test_the_round_trip_changes_nothing_but_the_rounding() -> None:
    trip = json.loads((HERE / "parity.json").read_text(encoding="utf-8"))["round_trip"]
    assert trip["missing"] == trip["extra"] == []
    assert trip["equal_to_the_rounded_checkpoint"] == trip["keys_in_checkpoint"] == 88


def test_what_packed_experts_did_on_a_gpu_and_what_the_guard_counted() -> None:
    folder = ROOT / "benchmarks/gpu/sglang"
    runs = json.loads((folder / "runs.json").read_text(encoding="utf-8"))
    left = {name: len(run["written"]["unwritten"]) for name, run in runs.items()}
    packed = {name for name in runs if "packed" in name}
    assert {name for name, count in left.items() if count} == packed
    assert {left[name] for name in packed} == {6}
    for path in folder.glob("*.jsonl"):
        steps = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for step in steps[1:]:
            difference = step["data"]["training/rollout_probs_diff_mean"]
            assert (difference > 0.2) if path.stem in packed else (difference < 0.003)
    assert (runs["moe-fsdp-packed-refused"]["reached"] or 0) == 0
