"""Each algorithm and each architecture trains two real steps in the rehearsal.

Real verl, Ray and vLLM on this machine's CPU: minutes each, hence `full`.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("trainer.test_freq=-1", "trainer.val_before_train=False")
# One recipe of each kind that no other run here has: dense with and without DAPO, sparse.
RECIPES = {
    "qwen25-7b": "Qwen2ForCausalLM",
    "dapo-qwen25-32b": "Qwen2ForCausalLM",
    "llama31-8b": "LlamaForCausalLM",
    "glm45-air": "Glm4MoeForCausalLM",
}
ALGORITHMS = sorted(path.stem for path in (ROOT / "recipes/algorithms").glob("*.yaml"))

pytestmark = [pytest.mark.full, pytest.mark.rehearsal]


def two_steps(runs: Path, overrides: list[str], *options: str) -> list[dict[str, float]]:
    """The metrics of steps 1 and 2; what the run printed when it did not get that far."""
    answer = reprise(runs, "reproduce", "rehearsal", "--steps", "2", *options, "--", *QUICK,
                     *overrides)  # fmt: skip
    return metrics_of(runs, answer)


def reprise(runs: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command, whose runs belong in `runs`."""
    return subprocess.run(
        [sys.executable, "-m", "reprise", *words],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=1500,
        env=os.environ | {"RUNS_DIR": str(runs)},
    )  # fmt: skip


def metrics_of(runs: Path, answer: subprocess.CompletedProcess[str]) -> list[dict[str, float]]:
    rows = [
        json.loads(line)
        for path in runs.glob("rehearsal/*/metrics/attempt-1.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    steps = {row["step"]: row["data"] for row in rows}
    assert {1, 2} <= set(steps), answer.stdout[-2000:] + answer.stderr[-2000:]
    return [steps[1], steps[2]]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_takes_two_steps(tmp_path: Path, algorithm: str) -> None:
    for metrics in two_steps(tmp_path, [], "--algo", algorithm):
        assert math.isfinite(metrics["actor/grad_norm"])
        assert math.isfinite(metrics["critic/rewards/mean"])
        assert ("critic/vf_loss" in metrics) is (algorithm == "ppo")
        if algorithm == "ppo":
            assert metrics["critic/grad_norm"] > 0


@pytest.mark.parametrize("arch", ["hy3", "qwen3-moe", "qwen3"])
def test_the_shape_of_each_recipe_takes_two_steps(tmp_path: Path, arch: str) -> None:
    for metrics in two_steps(tmp_path, [], "--arch", arch):
        assert math.isfinite(metrics["actor/grad_norm"])
        # Train and rollout agree: the weights that reached vLLM are those that are trained.
        assert metrics["training/rollout_probs_diff_mean"] < 0.02


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_command_takes_the_class_and_the_sampling_of_a_recipe(
    tmp_path: Path, recipe: str
) -> None:
    answer = reprise(tmp_path, "rehearsal", "shape", recipe, "--json", "--", *QUICK)
    for metrics in metrics_of(tmp_path, answer):
        assert math.isfinite(metrics["actor/grad_norm"])
        assert metrics["training/rollout_probs_diff_mean"] < 0.02
    report = json.loads(answer.stdout)
    assert (answer.returncode, report["verdict"]) == (0, "ok")
    assert report["model"] == RECIPES[recipe]
    assert {len(values) for values in report["metrics"].values()} == {2}
