"""recipes/dapo-qwen25-32b against the published script, key by key.

The values are those of recipe/dapo/run_dapo_qwen2.5_32b.sh (volcengine/verl at 03150d4), under the
names that the locked verl reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprise.recipe.config.verltree import find_tree
from reprise.recipe.load import Inputs, load

ROOT = Path(__file__).resolve().parents[2]
NAME = "dapo-qwen25-32b"
A = "actor_rollout_ref"
PUBLISHED: dict[str, Any] = {
    "data.max_prompt_length": 2048,
    "data.max_response_length": 20480,
    "data.train_batch_size": 512,
    "data.prompt_key": "prompt",
    "data.truncation": "left",
    "algorithm.adv_estimator": "grpo",
    "algorithm.use_kl_in_reward": False,
    f"{A}.actor.use_kl_loss": False,
    f"{A}.actor.clip_ratio_low": 0.2,
    f"{A}.actor.clip_ratio_high": 0.28,
    # use_token_level_loss=True of that time.
    f"{A}.actor.loss_agg_mode": "token-mean",
    f"{A}.actor.entropy_coeff": 0,
    f"{A}.actor.ppo_mini_batch_size": 32,
    f"{A}.actor.use_dynamic_bsz": True,
    f"{A}.actor.optim.lr": 1e-6,
    f"{A}.actor.optim.lr_warmup_steps": 10,
    f"{A}.actor.optim.weight_decay": 0.1,
    f"{A}.ref.log_prob_use_dynamic_bsz": True,
    f"{A}.rollout.log_prob_use_dynamic_bsz": True,
    f"{A}.rollout.n": 16,
    f"{A}.rollout.gpu_memory_utilization": 0.8,
    f"{A}.rollout.enable_chunked_prefill": True,
    f"{A}.rollout.max_num_batched_tokens": 22528,
    f"{A}.rollout.temperature": 1.0,
    f"{A}.rollout.top_p": 1.0,
    f"{A}.rollout.top_k": -1,
    f"{A}.rollout.val_kwargs.temperature": 1.0,
    f"{A}.rollout.val_kwargs.top_p": 1.0,
    f"{A}.rollout.val_kwargs.top_k": -1,
    f"{A}.rollout.val_kwargs.do_sample": True,
    f"{A}.rollout.val_kwargs.n": 1,
    "reward.reward_manager.name": "dapo",
    "reward.reward_kwargs.overlong_buffer_cfg.enable": True,
    "reward.reward_kwargs.overlong_buffer_cfg.len": 4096,
    "reward.reward_kwargs.overlong_buffer_cfg.penalty_factor": 1.0,
    "trainer.n_gpus_per_node": 8,
    "trainer.nnodes": 16,
    "trainer.val_before_train": True,
    "trainer.test_freq": 5,
    "trainer.save_freq": 5,
    "trainer.total_epochs": 1,
    "trainer.resume_mode": "auto",
    # Of FSDP there, of Megatron-LM here.
    f"{A}.actor.megatron.param_offload": True,
    f"{A}.actor.megatron.optimizer_offload": True,
    f"{A}.actor.optim.clip_grad": 1.0,
    f"{A}.rollout.tensor_model_parallel_size": 4,
}
# What the recipe has in place of it; its card says why.
DIFFERENT = {f"{A}.rollout.tensor_model_parallel_size": 1}


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    made = load(ROOT, NAME, [], Inputs(verl=find_tree(ROOT, "verl", "0.9.0").package))
    found: dict[str, Any] = dict(made.composition.values)
    return found


@pytest.mark.parametrize("key", PUBLISHED)
def test_a_published_setting_is_the_recipes_or_a_named_difference(
    values: dict[str, Any], key: str
) -> None:
    node: Any = values
    for part in key.split("."):
        node = node[part]
    assert node == DIFFERENT.get(key, PUBLISHED[key])
