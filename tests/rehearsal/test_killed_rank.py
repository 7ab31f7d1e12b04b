"""Two gloo ranks with vLLM on both: one is killed in a step, and verl resumes to the same curve."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/gpu/kill_rank.py"
# What a step computes, as against how long it took.
SAME = (
    "critic/rewards/mean",
    "actor/grad_norm",
    "response_length/mean",
    "training/rollout_probs_diff_mean",
)

pytestmark = [pytest.mark.rehearsal, pytest.mark.full]


def steps(runs: Path, number: int) -> dict[int, dict[str, Any]]:
    """The metrics of the run that began as number `number`, by step."""
    folder = sorted((runs / "rehearsal").iterdir())[number]
    lines = (folder / "metrics/attempt-1.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["step"]: row["data"] for row in map(json.loads, lines)}


def test_a_killed_rank_is_noticed_and_the_resumed_run_repeats_the_step(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "reprise", "reproduce", "rehearsal", "--ranks", "2"]
    command += ["--steps", "6", "--", "trainer.save_freq=2", "trainer.resume_mode=auto"]
    command += ["trainer.test_freq=-1", "trainer.val_before_train=false"]
    command += [f"trainer.default_local_dir={tmp_path / 'saved'}"]
    runs = tmp_path / "runs"
    environment = os.environ | {"RUNS_DIR": str(runs)}
    guard = [sys.executable, str(SCRIPT), "--step", "3", "--out", str(tmp_path / "killed.json")]
    subprocess.run([*guard, "--", *command], env=environment, cwd=ROOT, check=True)
    found = json.loads((tmp_path / "killed.json").read_text(encoding="utf-8"))
    assert set(found["ranks"]) == {"0", "1"}
    assert found["exit_code"] == 1
    assert found["seconds_until_known"] < 300
    assert "a worker died" in found["triage"]
    done = subprocess.run(command, env=environment, cwd=ROOT, check=False)
    # The verdict lacks the steps before the checkpoint.
    assert done.returncode == 2
    before, after = steps(runs, 0), steps(runs, 1)
    assert sorted(after) == [3, 4, 5, 6]
    assert {name: after[3][name] for name in SAME} == {name: before[3][name] for name in SAME}
