"""`reprise compare` as typed: groups of files, run folders, references; what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from curves.runs import REWARD, records, write
from typer.testing import CliRunner

from reprise.cli import app

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "recipes/rehearsal"
HALF = ROOT / "benchmarks/sabotage/runs/rate-half-1.jsonl"
SEEDS = [RECORDED / f"reference/seed-{seed}.jsonl" for seed in range(101, 106)]


def call(*words: object) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["compare", *map(str, words), "--json"])
    return done.exit_code, json.loads(done.stdout)


def notes(report: dict[str, Any]) -> str:
    return "\n".join(finding["message"] for finding in report["findings"])


def run_folder(path: Path, seed: int, rate: float = 1.0, **config: object) -> Path:
    write(path / "metrics/attempt-1.jsonl", records(seed, rate))
    facts = {"model": "toy", "state": "finished", "steps": 40, "seed": seed}
    (path / "run.json").write_text(json.dumps(facts))
    keys: dict[str, Any] = {"actor_rollout_ref": {"actor": {"optim": {"lr": 1e-6}}}}
    (path / "config.yaml").write_text(json.dumps(keys | config))
    return path


def test_recorded_seeds_at_half_the_speed_are_worse_and_the_other_way_round() -> None:
    code, report = call("rehearsal", HALF)
    assert (code, report["verdict"], report["comparison"]["outcome"]) == (1, "problem", "FAIL")
    assert report["comparison"]["runs"] == {"a": 5, "b": 1}
    assert [run["seed"] for run in report["comparison"]["groups"]["a"]] == [*range(101, 106)]
    assert "same spread" in notes(report)
    code, report = call(HALF, "vs", "rehearsal")
    assert (code, report["comparison"]["outcome"]) == (0, "PASS")


@pytest.mark.parametrize("engine", ["fsdp", "megatron"])
def test_a_frozen_actor_is_worse_than_the_seeds_of_its_engine(engine: str) -> None:
    frozen = ROOT / f"benchmarks/gpu/runs/frozen-{engine}.jsonl"
    code, report = call(RECORDED / f"reference-gpu-{engine}", frozen)
    assert (code, report["comparison"]["outcome"]) == (1, "FAIL")


def test_recorded_seeds_in_two_groups_are_not_told_apart() -> None:
    code, report = call(*SEEDS[:2], "vs", *SEEDS[2:])
    assert (code, report["verdict"]) == (2, "unknown")
    done = CliRunner().invoke(app, ["compare", *map(str, [*SEEDS[:2], "vs", *SEEDS[2:]])])
    assert done.exit_code == 2
    assert done.stdout.startswith("INCONCLUSIVE: is B better than A? A 2 runs, B 3 runs,")
    assert "No configuration" not in done.stdout and "no configuration is recorded" in done.stdout


def test_a_run_that_is_counted_twice_is_refused(tmp_path: Path) -> None:
    code, report = call(*SEEDS[:2], SEEDS[0], "vs", SEEDS[3])
    assert code == 1 and "one run for the spread" in notes(report)
    code, report = call(SEEDS[0], SEEDS[0])
    assert code == 1 and "a change without effect" in notes(report)
    assert "comparison" not in report


@pytest.mark.parametrize(
    "words", [("a",), ("a", "b", "c"), ("vs", "b"), ("a", "vs"), ("a", "vs", "b", "vs", "c")]
)
def test_anything_but_two_groups_is_refused(words: tuple[str, ...]) -> None:
    code, report = call(*words)
    assert code == 1 and report["findings"][0]["rule"] == "compare-groups"


def test_the_change_is_listed_and_paths_are_not(tmp_path: Path) -> None:
    a = [run_folder(tmp_path / f"a{seed}", seed, rate=0.5) for seed in (1, 2, 3)]
    changed = {"actor_rollout_ref": {"actor": {"optim": {"lr": 4e-6}}, "model": {"path": "/x"}}}
    b = [run_folder(tmp_path / f"b{seed}", seed, **changed) for seed in (3, 4, 5)]
    code, report = call(*a, "vs", *b)
    assert code == 0, report
    assert "actor_rollout_ref.actor.optim.lr: 4e-06 (A: 1e-06)" in notes(report)
    assert "/x" not in notes(report)
    assert "seeds 3 are on both sides" in notes(report)


def test_runs_of_one_side_that_differ_are_inconclusive_until_accepted(tmp_path: Path) -> None:
    a = [run_folder(tmp_path / f"a{seed}", seed, rate=0.5) for seed in (1, 2, 3)]
    b = [run_folder(tmp_path / "b4", 4), run_folder(tmp_path / "b5", 5)]
    b.append(run_folder(tmp_path / "b6", 6, data={"train_batch_size": 64}))
    code, report = call(*a, "vs", *b)
    assert (code, report["comparison"]["outcome"]) == (2, "INCONCLUSIVE")
    assert "runs of B differ in what matters" in notes(report)
    code, report = call(*a, "vs", *b, "--accept", "data.train_batch_size")
    assert (code, report["comparison"]["outcome"]) == (0, "PASS")


def test_another_reward_function_is_another_scale(tmp_path: Path) -> None:
    a = [run_folder(tmp_path / f"a{seed}", seed, rate=0.5) for seed in (1, 2, 3)]
    rewards = {"reward": {"custom_reward_function": {"path": "/other/strict.py"}}}
    b = [run_folder(tmp_path / f"b{seed}", seed, **rewards) for seed in (4, 5, 6)]
    code, report = call(*a, "vs", *b)
    assert code == 2 and "different rewards" in notes(report)
    assert not any(row["decides"] for row in report["comparison"]["metrics"])
    accepted = ("--accept", "reward.custom_reward_function.path")
    assert call(*a, "vs", *b, *accepted)[0] == 0
    # The same file in another folder, and a number of processes, change nothing.
    same = {"reward": {"custom_reward_function": {"path": "/there/strict.py"}, "num_workers": 8}}
    c = [run_folder(tmp_path / f"c{seed}", seed, rate=0.5, **same) for seed in (7, 8, 9)]
    assert call(*c, "vs", *b)[0] == 0


def test_other_training_data_leaves_the_validation_to_decide(tmp_path: Path) -> None:
    data = [
        {"data": {"train_files": [f"/d/{name}.parquet"], "val_files": "/d/val.parquet"}}
        for name in ("small", "large")
    ]
    a = [run_folder(tmp_path / f"a{seed}", seed, rate=0.5, **data[0]) for seed in (1, 2, 3, 4)]
    b = [run_folder(tmp_path / f"b{seed}", seed, **data[1]) for seed in (5, 6, 7, 8)]
    code, report = call(*a, "vs", *b)
    assert code == 0 and "different training data" in notes(report)
    decided = {row["metric"]: row["decides"] for row in report["comparison"]["metrics"]}
    assert decided[REWARD] is False


def test_shorter_runs_are_compared_over_the_steps_that_all_have(tmp_path: Path) -> None:
    a = [write(tmp_path / f"a{seed}.jsonl", records(seed, rate=0.5)) for seed in (1, 2, 3)]
    b = [write(tmp_path / f"b{seed}.jsonl", records(seed)[:31]) for seed in (4, 5, 6)]
    code, report = call(*a, "vs", *b)
    assert (code, report["comparison"]["steps"]) == (0, 30)
    assert "30 to 40 steps" in notes(report)
    assert call(*a, "vs", *b, "--steps", 20)[1]["comparison"]["steps"] == 20


def test_a_run_that_ended_early_does_not_shorten_the_others_in_silence(tmp_path: Path) -> None:
    a = [write(tmp_path / f"a{seed}.jsonl", records(seed, rate=0.2)) for seed in (1, 2, 3)]
    b = [write(tmp_path / f"b{seed}.jsonl", records(seed)) for seed in (4, 5)]
    b.append(write(tmp_path / "b6.jsonl", records(6)[:16]))
    code, report = call(*a, "vs", *b)
    assert (code, report["comparison"]["outcome"]) == (2, "INCONCLUSIVE")
    fix = next(f["fix"] for f in report["findings"] if "shortest run" in f["message"])
    assert fix.endswith("--steps 15")
    assert call(*a, "vs", *b, "--steps", 15)[0] == 0


def test_another_number_of_answers_a_step_is_noted(tmp_path: Path) -> None:
    def sized(prompts: int) -> dict[str, Any]:
        rollout = {"actor_rollout_ref": {"rollout": {"n": 8}}}
        return rollout | {"data": {"train_batch_size": prompts}}

    a = run_folder(tmp_path / "a", 1, **sized(16))
    b = run_folder(tmp_path / "b", 2, **sized(32))
    assert "128 answers in A and 256 in B" in notes(call(a, b)[1])


def test_a_judge_file_says_what_is_compared(tmp_path: Path) -> None:
    judge = tmp_path / "judge.toml"
    judge.write_text('[reward]\nmetric = "actor/entropy"\ndirection = "down"\nwindows = 2\n')
    _, report = call(*SEEDS[:2], "vs", *SEEDS[2:], "--judge", judge)
    assert report["comparison"]["metrics"][0]["metric"] == "actor/entropy"
    code, report = call(*SEEDS[:2], "vs", *SEEDS[2:], "--judge", tmp_path / "none.toml")
    assert code == 1 and "no such file" in notes(report)


def test_the_example_of_the_page_is_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/compare.md").read_text(encoding="utf-8")
    example = page.partition("## Example")[2].partition("\n## ")[0]
    command, *lines = [line[4:] for line in example.splitlines() if line.startswith("    ")]
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, command.split()[1:])
    assert done.stdout.splitlines()[: len(lines)] == lines


def test_what_cannot_be_read_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    for words in ((tmp_path / "empty.jsonl", SEEDS[0]), (SEEDS[0], "no-such-run-anywhere")):
        code, report = call(*words)
        assert code in (1, 2) and report["findings"], words
