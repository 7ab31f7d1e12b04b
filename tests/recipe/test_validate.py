"""verl's own validation and dataclasses accept what the rules accept."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from reprise.recipe.load import load

ROOT = Path(__file__).resolve().parents[2]
VALIDATE = """
import json, sys
from omegaconf import OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
for name, values in json.load(sys.stdin).items():
    config = OmegaConf.create(values)
    config.critic.model = None  # would be read from the weights' folder
    validate_config(config, need_reference_policy(config), need_critic(config))
    for node in (config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout,
                 config.algorithm):
        omega_conf_to_dataclass(node)
    if need_critic(config):
        omega_conf_to_dataclass(config.critic)
    print("valid", name)
"""
OPTIONS = {
    "hy3": ["hy3", "hy3/variant=as_documented", "algorithms=gspo", "algorithms=remax",
            "algorithms=ppo"],
    "qwen3-30b-a3b": ["qwen3-30b-a3b", "common/sglang=all", "algorithms=cispo"],
    "qwen3-8b": ["qwen3-8b", "algorithms=dapo_filtered", "algorithms=ppo"],
}  # fmt: skip


@pytest.mark.rehearsal
@pytest.mark.parametrize("name", OPTIONS)
def test_verl_accepts_the_recipe(name: str) -> None:
    from reprise.recipe.config.overrides import Line

    configs = {}
    for option in OPTIONS[name]:
        lines = [Line(option)] if "=" in option else []
        loaded = load(ROOT, name, lines)
        configs[f"{name} {option}"] = loaded.composition.values
    answer = subprocess.run(
        [str(ROOT / ".venv-rehearsal/bin/python"), "-c", VALIDATE],
        input=json.dumps(configs), capture_output=True, text=True, check=False, timeout=600,
        # The very tree that the recipe was composed with, not the environment's own release.
        env=os.environ | {"PYTHONPATH": str(loaded.tree.package.parent), "VERL_PLATFORM": "cpu"},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert answer.stdout.count("valid ") == len(configs)
