"""The commands as an operator types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent / "scripts"


def reprise(*arguments: str) -> tuple[int, str, str]:
    answer = subprocess.run(
        [sys.executable, "-m", "reprise", "recipe", *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=300,
    )  # fmt: skip
    return answer.returncode, answer.stdout, answer.stderr


def report(*arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = reprise(*arguments, "--json")
    return code, json.loads(out)


def test_check_of_a_recipe() -> None:
    code, data = report("check", "hy3")
    assert (code, data["verdict"]) == (0, "ok")
    assert data["verl"]["origin"]
    assert len(data["rules"]) > 45
    assert all(rule["source"] for rule in data["rules"])


def test_check_prints_what_was_composed_with_what() -> None:
    code, out, _ = reprise("check", "hy3", "--explain", "--", "data.train_batch_size=64")
    assert code == 1
    assert out.startswith("composed with verl 0.9.0")
    assert "64 prompts x n 16 = 1024" in out
    assert "mini batch 128 > train batch 64" in out
    assert "fix: actor_rollout_ref.actor.ppo_mini_batch_size=64" in out
    assert "command line" in out


def test_check_of_a_script() -> None:
    code, data = report("check", "--script", str(SCRIPTS / "hy3.sh"), "--model", "hy3")
    assert code == 1
    failed = {finding["rule"] for finding in data["findings"] if finding["severity"] == "error"}
    assert failed == {"recipe-reward-legacy-keys"}
    assert len(data["overrides"]) == 66
    assert [launch["entry"] for launch in data["launches"]] == ["verl.trainer.main_ppo"]


def test_check_of_overrides(tmp_path: Path) -> None:
    file = tmp_path / "o.txt"
    file.write_text("reward_model.reward_manager=dapo\nnonsense.key=1\n")
    code, data = report("check", "--overrides", str(file))
    assert code == 1
    wheres = {f["rule"]: f["where"] for f in data["findings"] if f["severity"] == "error"}
    assert wheres["recipe-override-unknown-key"].startswith(f"{file}:2")
    assert wheres["recipe-reward-legacy-keys"].startswith(f"{file}:1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("env_var:\n  A: b\n", "unknown key 'env_var', did you mean env_vars"),
        ("- a\n", "expected keys and values, found a list"),
        (None, "file not found"),
    ],
)
def test_a_runtime_environment_is_not_passed_over(
    tmp_path: Path, text: str | None, said: str
) -> None:
    file = tmp_path / "env.yaml"
    if text is not None:
        file.write_text(text)
    code, data = report("check", "hy3", "--runtime-env", str(file))
    assert (code, data["verdict"]) == (1, "problem")
    assert [(f["where"], f["message"]) for f in data["findings"]] == [(str(file), said)]


def test_a_job_of_others_may_use_all_that_ray_knows(tmp_path: Path) -> None:
    file = tmp_path / "env.yaml"
    file.write_text("pip: [a]\npy_modules: [b]\n")
    assert report("check", "hy3", "--runtime-env", str(file))[0] == 0


def test_two_things_to_check_are_refused(tmp_path: Path) -> None:
    script = ("--script", str(SCRIPTS / "hy3.sh"))
    for more in (("--overrides", str(tmp_path / "o")), ("hy3", "--model", "qwen3-8b")):
        code, data = report("check", *script, *more)
        assert code == 1
        assert data["findings"][0]["message"] == "expected one thing to check, found two"


def test_a_script_whose_model_is_not_named_is_told_how() -> None:
    _, data = report("check", "--script", str(SCRIPTS / "hy3.sh"))
    missing = {c["rule"] for c in data["checks"] if c["state"] == "unknown"}
    fixes = {f["fix"] for f in data["findings"] if f["rule"] in missing}
    assert fixes == {"name the recipe of this model, data and machine: --model MODEL"}


def test_environment_in_two_places(tmp_path: Path) -> None:
    env = tmp_path / "runtime_env.yaml"
    env.write_text("working_dir: ./\nenv_vars:\n  NCCL_DEBUG: INFO\n  WANDB_API_KEY: abcdef0123\n")
    init = "ray_kwargs.ray_init.runtime_env"
    code, out, err = reprise(
        "check", "hy3", "--runtime-env", str(env), "--",
        f"+{init}.env_vars.NCCL_DEBUG=WARN", f"+{init}.working_dir=/x",
    )  # fmt: skip
    assert code == 1
    assert out.count("[recipe-env-merge]") == 2
    assert "abcdef0123" not in out + err


@pytest.mark.parametrize(
    "arguments",
    [
        ("check",),
        ("check", "none"),
        ("check", "--script", "none.sh"),
        ("check", "--overrides", "none.txt"),
        ("check", "hy3", "--verl", "/nowhere"),
        ("plan", "none"),
        ("show", "none"),
        ("check", "hy3", "--model-config", "/nowhere"),
    ],
)
def test_faults_of_the_operator_are_no_tracebacks(arguments: tuple[str, ...]) -> None:
    code, out, err = reprise(*arguments)
    assert code == 1
    assert "Traceback" not in out + err
    assert "fix: " in out


def test_a_script_that_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text("echo hello\n")
    code, data = report("check", "--script", str(tmp_path / "x.sh"))
    assert (code, data["verdict"]) == (2, "unknown")


def test_list_show_and_plan() -> None:
    code, data = report("list")
    assert code == 0
    assert {"hy3", "qwen3-8b", "rehearsal"} <= {row["name"] for row in data["recipes"]}
    code, data = report("show", "hy3", "--algo", "rloo")
    assert code == 0
    assert "algorithms=rloo" in data["job"]
    assert data["config"]["algorithm"]["adv_estimator"] == "rloo"
    assert any(row["key"] == "data.train_batch_size" for row in data["differences"])
    code, out, _ = reprise("show", "hy3", "--full")
    assert code == 0
    assert "adv_estimator: grpo" in out
    code, out, _ = reprise("plan", "hy3")
    assert code == 0
    assert "smallest_tp" in out
    code, data = report("plan", "hy3", "--gpu-memory", "40")
    assert (code, data["verdict"]) == (1, "problem")


def test_torch_is_not_imported() -> None:
    # -X importtime names every module; the operator's environment may or may not have torch.
    answer = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "reprise", "recipe", "check", "hy3"],
        capture_output=True, text=True, check=True, cwd=ROOT, timeout=300,
    )  # fmt: skip
    modules = {line.rsplit("|", 1)[-1].strip() for line in answer.stderr.splitlines()}
    assert "hydra" in modules
    assert not {"torch", "verl", "transformers", "vllm", "ray"} & modules
