"""Every rule on both sides of its edge."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprise.core.findings import Severity
from reprise.recipe.names import known_names
from reprise.recipe.rules.base import NotApplicable, Undecided
from reprise.recipe.ruleset import ALL_RULES
from reprise.recipe.setup import Known, Setup
from reprise.recipe.unknowns import NotKnown, ValueUnknown

from .conftest import HY3, QWEN3_8B, A, M, R

# The ids as the table has them, without the room that every id begins with.
RULES = {rule.id.removeprefix("recipe-"): rule for rule in ALL_RULES}
Q7B = {"model_type": "qwen2", "num_attention_heads": 28, "num_key_value_heads": 4,
       "num_hidden_layers": 28}  # fmt: skip
SMALL = {"model_type": "qwen2", "num_attention_heads": 12, "num_key_value_heads": 2,
         "num_hidden_layers": 28}  # fmt: skip


def verdict(rule: str, setup: Setup) -> tuple[str, str]:
    """(ok | note | warning | error | n/a | unknown, everything that the rule said)."""
    try:
        judgement = RULES[rule].of(setup)
    except NotApplicable as error:
        return "n/a", str(error)
    except Undecided as error:
        return "unknown", str(error)
    text = " | ".join(
        [*judgement.formula, *(f"{p.key}: {p.message} -> {p.fix}" for p in judgement.problems)]
    )
    order = [Severity.ERROR, Severity.WARNING, Severity.NOTE]
    for severity in order:
        if any(problem.severity is severity for problem in judgement.problems):
            return severity.value, text
    return "ok", text


def machine(nodes: int, gpus: int, **more: Any) -> dict[str, Any]:
    return {"trainer.nnodes": nodes, "trainer.n_gpus_per_node": gpus, **more}


def megatron(tp: int, pp: int, cp: int, ep: int = 1, etp: int | None = None) -> dict[str, Any]:
    return {
        f"{A}.strategy": "megatron",
        f"{M}.tensor_model_parallel_size": tp,
        f"{M}.pipeline_model_parallel_size": pp,
        f"{M}.context_parallel_size": cp,
        f"{M}.expert_model_parallel_size": ep,
        f"{M}.expert_tensor_parallel_size": etp,
    }


def batch(train: int, n: int, dynamic: bool, micro: int | None = None) -> dict[str, Any]:
    return {
        "data.train_batch_size": train,
        f"{R}.n": n,
        f"{A}.use_dynamic_bsz": dynamic,
        f"{A}.ppo_micro_batch_size_per_gpu": micro,
    }


def lengths(prompt: int, response: int) -> dict[str, Any]:
    return {"data.max_prompt_length": prompt, "data.max_response_length": response}


def mini(train: int, size: int, dynamic: bool = True) -> dict[str, Any]:
    return batch(train, 4, dynamic) | {f"{A}.ppo_mini_batch_size": size}


LONG = lengths(2048, 8192)
BUDGET = f"{A}.ppo_max_token_len_per_gpu"
OVERRIDE = f"{M}.override_transformer_config"
IS = "algorithm.rollout_correction"
VLLM = {f"{R}.name": "vllm", f"{R}.calculate_log_probs": True}
CASES: list[tuple[str, str, dict[str, Any], dict[str, Any] | None, str]] = [
    # rule, verdict, settings, model, part of what it says
    ("batch-divisible", "error", machine(3, 16) | batch(64, 8, False), None,
     "data.train_batch_size=66 (or 60)"),
    ("batch-divisible", "ok", machine(3, 16) | batch(66, 8, False), None, "= 528"),
    ("batch-divisible", "error", machine(1, 6) | batch(512, 1, False), None, "512 % 6 = 2"),
    ("batch-divisible", "ok", machine(16, 8) | megatron(1, 16, 8) | batch(128, 16, True), None,
     "DP 1"),
    ("batch-divisible", "ok", machine(1, 7) | batch(42, 5, False), None, "210 % (1 nodes x 7"),
    ("batch-divisible", "error", machine(2, 8) | megatron(2, 2, 1) | batch(6, 1, False, 4), None,
     "DP 4 x micro 4 = 16"),
    ("batch-divisible", "unknown", machine(1, 8) | megatron(3, 1, 1) | batch(6, 1, True), None,
     "parallel-world"),
    ("batch-mini-in-train", "ok", mini(128, 128), None, "128 <= train batch 128"),
    ("batch-mini-in-train", "error", mini(128, 129), None, "padded to 516"),
    ("batch-mini-in-train", "error", mini(128, 129, dynamic=False), None, "verl refuses it"),
    ("batch-mini-in-train", "warning", mini(128, 96), None, "padded to 768"),
    ("batch-mini-splits", "ok", machine(1, 8) | mini(16, 2), None, "8 % DP 8"),
    ("batch-mini-splits", "error", machine(1, 8) | mini(16, 1), None, "ppo_mini_batch_size=2"),
    ("batch-mini-splits", "error",
     machine(1, 1) | mini(16, 16, False) | {f"{A}.ppo_micro_batch_size_per_gpu": 48}, None, "=32"),
    ("batch-mini-splits", "ok",
     machine(1, 1) | mini(16, 16, False) | {f"{A}.ppo_micro_batch_size_per_gpu": 32}, None, ""),
    ("batch-log-prob-splits", "n/a", batch(8, 1, True), None, "packs by tokens"),
    ("batch-log-prob-splits", "error",
     machine(2, 1) | batch(128, 1, False, 8) | {f"{R}.log_prob_micro_batch_size_per_gpu": 128},
     None, "log_prob_micro_batch_size_per_gpu=64"),
    ("batch-log-prob-splits", "ok",
     machine(2, 1) | batch(128, 1, False, 8) | {f"{R}.log_prob_micro_batch_size_per_gpu": 32},
     None, "64 % "),
    ("batch-log-prob-splits", "ok",
     machine(2, 1) | batch(128, 1, False, 8) | {f"{R}.log_prob_micro_batch_size_per_gpu": 128}
     | {f"{IS}.bypass_mode": True}, None, ""),
    ("batch-micro-set", "n/a", batch(8, 1, True), None, "packs by tokens"),
    ("batch-micro-set", "error", batch(8, 1, False), None, "not set"),
    ("batch-micro-set", "ok",
     batch(8, 1, False, 2) | {f"{R}.log_prob_micro_batch_size_per_gpu": 2}, None, ""),
    ("batch-micro-set", "error",
     batch(8, 1, False, 2)
     | {f"{R}.log_prob_micro_batch_size_per_gpu": 2, f"{R}.log_prob_micro_batch_size": 2}, None,
     "set together"),
    ("batch-dynamic-agrees", "ok",
     {f"{A}.use_dynamic_bsz": True, f"{R}.log_prob_use_dynamic_bsz": True}, None, ""),
    ("batch-dynamic-agrees", "error",
     {f"{A}.use_dynamic_bsz": True, f"{R}.log_prob_use_dynamic_bsz": False}, None, "=True"),
    ("batch-group-size", "ok", {"algorithm.adv_estimator": "grpo", f"{R}.n": 2}, None, "2 >= 2"),
    ("batch-group-size", "warning", {"algorithm.adv_estimator": "grpo", f"{R}.n": 1}, None, "n=8"),
    ("batch-group-size", "n/a", {"algorithm.adv_estimator": "gae", f"{R}.n": 1}, None, "gae"),
    ("tokens-actor", "error",
     machine(1, 8) | lengths(8192, 32768) | batch(8, 1, True) | {BUDGET: 16384}, None,
     "=40960, or actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=4"),
    ("tokens-actor", "ok",
     machine(16, 8) | megatron(1, 16, 8) | LONG | batch(8, 1, True) | {BUDGET: 30720}, None,
     "245,760 >= prompt 2048 + response 8192 = 10,240; slack 24.00x"),
    ("tokens-actor", "warning",
     machine(16, 8) | megatron(1, 16, 8) | LONG | batch(8, 1, True) | {BUDGET: 1280}, None,
     "no slack"),
    ("tokens-actor", "error",
     machine(16, 8) | megatron(1, 16, 8) | LONG | batch(8, 1, True) | {BUDGET: 1279}, None,
     "=1280"),
    ("tokens-actor", "n/a", LONG | batch(8, 1, False) | {BUDGET: 1024}, None, "is off"),
    ("tokens-ref", "error",
     LONG | {f"{A}.use_kl_loss": True, "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": True,
             "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": 4096}, None, "4096 x CP 1"),
    ("tokens-ref", "n/a",
     LONG | {"actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": 4096}, None, "does not load"),
    ("tokens-rollout", "error",
     LONG | {f"{R}.log_prob_use_dynamic_bsz": True,
             f"{R}.log_prob_max_token_len_per_gpu": 10239}, None, "10,239 < 10,240"),
    ("tokens-ref", "ok",
     LONG | {f"{A}.use_kl_loss": True, "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": True,
             "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": 10241}, None, "10,241 >="),
    ("tokens-rollout", "ok",
     LONG | {f"{R}.log_prob_use_dynamic_bsz": True,
             f"{R}.log_prob_max_token_len_per_gpu": 10241}, None, ""),
    ("length-agree", "ok", LONG, None, ""),
    ("length-agree", "warning", LONG | {f"{R}.response_length": 4096}, None, "follows"),
    ("length-max-model-len", "error", lengths(4096, 4096) | {f"{R}.max_model_len": 4096}, None,
     "max_model_len=8192"),
    ("length-max-model-len", "ok", lengths(4096, 4096) | {f"{R}.max_model_len": None}, HY3,
     "262,144"),
    ("length-max-model-len", "error", lengths(4096, 36865), QWEN3_8B, "=36864"),
    ("length-max-model-len", "ok", LONG | {f"{R}.max_model_len": 10240}, None, "10,240 >="),
    ("length-max-model-len", "error", LONG | {f"{R}.max_model_len": 10239}, None, "10,239 <"),
    ("length-model-limit", "error", LONG | {f"{R}.max_model_len": 40961}, QWEN3_8B,
     "max_position_embeddings 40,960 of config.json"),
    ("length-model-limit", "ok", LONG | {f"{R}.max_model_len": 40960}, QWEN3_8B, ""),
    ("length-model-limit", "unknown", LONG, None, "--model-config"),
    ("length-batched-tokens", "ok",
     LONG | {f"{R}.name": "vllm", f"{R}.max_model_len": 10240, f"{R}.max_num_batched_tokens": 8192,
             f"{R}.enable_chunked_prefill": True}, None, ""),
    ("length-batched-tokens", "error",
     LONG | {f"{R}.name": "vllm", f"{R}.max_model_len": 10240, f"{R}.max_num_batched_tokens": 8192,
             f"{R}.enable_chunked_prefill": False}, None, "=10240"),
    ("length-batched-tokens", "ok",
     LONG | {f"{R}.name": "vllm", f"{R}.max_model_len": 10240,
             f"{R}.max_num_batched_tokens": 10240, f"{R}.enable_chunked_prefill": False}, None, ""),
    ("parallel-world", "ok", machine(16, 8) | megatron(1, 16, 8), None, "x DP 1"),
    ("parallel-world", "error", machine(15, 8) | megatron(1, 16, 8), None, "120 GPUs"),
    ("parallel-experts-world", "error", machine(1, 8) | megatron(2, 2, 1, 8, 1), HY3,
     "expert_model_parallel_size=4 (or 1, 2)"),
    ("parallel-experts-world", "ok", machine(1, 8) | megatron(2, 2, 1, 4, 1), HY3, "expert DP 1"),
    ("parallel-experts-world", "error", machine(1, 4) | megatron(4, 1, 1, 4, None), None,
     "expert_tensor_parallel_size=1"),
    ("parallel-experts-world", "ok", machine(16, 8) | megatron(1, 16, 8, 8, 1), HY3,
     "x expert DP 1; DP 1"),
    ("parallel-experts-world", "error", machine(16, 8) | megatron(1, 16, 8, 16, 1), HY3, "= 256"),
    ("parallel-experts-world", "error", machine(2, 8) | megatron(2, 2, 1, 32, 1), HY3, "= 64"),
    ("parallel-experts-gradients", "error", machine(1, 2) | megatron(2, 1, 1, 1, 1), HY3,
     "expert_tensor_parallel_size=2"),
    ("parallel-experts-gradients", "error", machine(1, 8) | megatron(2, 1, 1, 1, 4), HY3, "EP 1"),
    ("parallel-experts-gradients", "ok", machine(1, 2) | megatron(2, 1, 1, 1, None), HY3, ""),
    ("parallel-experts-gradients", "ok", machine(1, 2) | megatron(2, 1, 1, 2, 1), HY3, ""),
    ("parallel-experts-gradients", "ok", machine(1, 2) | megatron(1, 1, 2, 1, 1), HY3, ""),
    ("parallel-experts-divide", "error", machine(7, 8) | megatron(1, 1, 1, 7, 1), HY3,
     "192 experts % EP 7 = 3"),
    ("parallel-experts-divide", "ok", machine(7, 8) | megatron(1, 1, 1, 8, 1), HY3, ""),
    ("parallel-dense", "error", machine(4, 8) | megatron(1, 1, 1, 8, 1), QWEN3_8B, "no experts"),
    ("parallel-dense", "ok", machine(4, 8) | megatron(1, 1, 1), QWEN3_8B, ""),
    ("parallel-dense", "warning",
     machine(4, 8) | megatron(1, 1, 1) | {f"{OVERRIDE}.moe_grouped_gemm": True}, QWEN3_8B, "dense"),
    ("parallel-dense", "n/a", machine(4, 8) | megatron(1, 1, 1, 8, 1), HY3, "192"),
    ("parallel-layers", "error", machine(4, 8) | megatron(1, 8, 1), QWEN3_8B, "36 % 8 = 4"),
    ("parallel-layers", "ok", machine(4, 8) | megatron(1, 4, 1), QWEN3_8B, "9 per stage"),
    ("parallel-layers", "ok",
     machine(4, 8) | megatron(1, 8, 1) | {f"{OVERRIDE}.num_layers_in_last_pipeline_stage": 1},
     QWEN3_8B, "5/5/5/5/5/5/5/1"),
    ("parallel-layers", "error",
     machine(4, 8) | megatron(1, 8, 1) | {f"{OVERRIDE}.num_layers_in_last_pipeline_stage": 2},
     QWEN3_8B, "not divisible"),
    ("parallel-layers", "error",
     machine(16, 8) | megatron(1, 16, 8)
     | {f"{OVERRIDE}.account_for_loss_in_pipeline_split": True}, HY3, "80 layers"),
    ("parallel-layers", "error",
     machine(4, 8) | megatron(1, 1, 1) | {f"{M}.virtual_pipeline_model_parallel_size": 2},
     QWEN3_8B, "need PP > 1"),
    ("parallel-layers", "error",
     machine(4, 8) | megatron(1, 4, 1) | {f"{M}.virtual_pipeline_model_parallel_size": 2},
     QWEN3_8B, "2 virtual stages"),
    ("parallel-layers", "ok",
     machine(4, 8) | megatron(1, 4, 1) | {f"{M}.virtual_pipeline_model_parallel_size": 3},
     QWEN3_8B, ""),
    ("parallel-heads", "error", machine(4, 8) | megatron(3, 1, 1), QWEN3_8B, "32 heads"),
    ("parallel-heads", "ok", machine(4, 8) | megatron(8, 1, 1), QWEN3_8B, ""),
    ("parallel-heads", "warning", machine(4, 8) | megatron(16, 1, 1), QWEN3_8B, "8 KV heads"),
    ("parallel-sequence", "error",
     machine(4, 8) | megatron(4, 1, 1, 8, 1) | {f"{M}.sequence_parallel": False}, HY3, "=True"),
    ("parallel-sequence", "ok",
     machine(4, 8) | megatron(4, 1, 1, 8, 1) | {f"{M}.sequence_parallel": True}, HY3, ""),
    ("parallel-sequence", "n/a",
     machine(4, 8) | megatron(1, 1, 1, 8, 1) | {f"{M}.sequence_parallel": False}, HY3, "TP > 1"),
    ("parallel-recompute", "error",
     machine(4, 8) | megatron(1, 4, 1)
     | {f"{OVERRIDE}.recompute_granularity": "full", f"{OVERRIDE}.recompute_method": "uniform",
        f"{OVERRIDE}.recompute_num_layers": 10}, QWEN3_8B, "largest stage has 9"),
    ("parallel-recompute", "ok",
     machine(4, 8) | megatron(1, 4, 1)
     | {f"{OVERRIDE}.recompute_granularity": "full", f"{OVERRIDE}.recompute_method": "uniform",
        f"{OVERRIDE}.recompute_num_layers": 9}, QWEN3_8B, "<= 9 layers"),
    ("parallel-recompute", "error",
     machine(4, 8) | megatron(1, 4, 1) | {f"{OVERRIDE}.recompute_granularity": "full"}, QWEN3_8B,
     "recompute_method=uniform"),
    ("parallel-recompute", "warning",
     machine(4, 8) | megatron(1, 4, 1) | {f"{OVERRIDE}.recompute_num_layers": 1}, QWEN3_8B,
     "without full"),
    ("rollout-heads", "error", machine(1, 8) | {f"{R}.tensor_model_parallel_size": 8}, Q7B,
     "tensor_model_parallel_size=4 (or 1, 2)"),
    ("rollout-heads", "note", machine(16, 8) | {f"{R}.tensor_model_parallel_size": 16}, HY3,
     "replicated 2 times"),
    ("rollout-heads", "error", machine(1, 8) | {f"{R}.tensor_model_parallel_size": 8}, SMALL,
     "12 heads"),
    ("rollout-heads", "note", machine(1, 8) | {f"{R}.tensor_model_parallel_size": 4}, SMALL,
     "replicated 2 times"),
    ("rollout-heads", "ok", machine(1, 8) | {f"{R}.tensor_model_parallel_size": 2}, SMALL, ""),
    ("rollout-replicas", "note", machine(16, 8) | {f"{R}.tensor_model_parallel_size": 16}, None,
     "spans 2 nodes"),
    ("rollout-replicas", "error", machine(1, 8) | {f"{R}.tensor_model_parallel_size": 16}, None,
     "not divisible"),
    ("rollout-replicas", "error", machine(3, 8) | {f"{R}.tensor_model_parallel_size": 12}, None,
     "does not fill"),
    ("rollout-replicas", "warning",
     machine(4, 8) | {f"{R}.tensor_model_parallel_size": 2, f"{R}.data_parallel_size": 16,
                      f"{R}.name": "sglang"}, None, "not 16 replicas"),
    ("rollout-replicas", "error",
     machine(4, 8) | {f"{R}.tensor_model_parallel_size": 2, f"{R}.pipeline_model_parallel_size": 2,
                      f"{R}.name": "vllm"}, None, "not implemented"),
    ("rollout-expert-parallel", "error",
     {f"{R}.tensor_model_parallel_size": 4, f"{R}.expert_parallel_size": 2}, None, "=4 (or 1)"),
    ("rollout-expert-parallel", "ok",
     {f"{R}.tensor_model_parallel_size": 4, f"{R}.expert_parallel_size": 4}, None, ""),
    ("rollout-validation-sampling", "ok",
     {f"{R}.val_kwargs.do_sample": True, f"{R}.val_kwargs.temperature": 1.0,
      f"{R}.val_kwargs.n": 8}, None, ""),
    ("rollout-validation-sampling", "warning",
     {f"{R}.val_kwargs.do_sample": False, f"{R}.val_kwargs.temperature": 0.8}, None,
     "temperature=0.8"),
    ("rollout-validation-sampling", "warning",
     {f"{R}.val_kwargs.do_sample": False, f"{R}.val_kwargs.n": 8}, None, "8 times the same"),
    ("rollout-temperature", "error", {f"{R}.temperature": 0}, None, "equal"),
    ("rollout-temperature", "ok", {f"{R}.temperature": 0.1}, None, ""),
    ("rollout-truncated", "ok", VLLM | {f"{R}.top_p": 1, f"{R}.top_k": -1}, None, "top_p 1 = 1"),
    ("rollout-truncated", "ok", VLLM, None, ""),
    ("rollout-truncated", "warning", VLLM | {f"{R}.top_p": 0.99}, None, "top_p=1.0"),
    ("rollout-truncated", "warning", VLLM | {f"{R}.top_k": 100}, None, "top_k=-1"),
    ("rollout-truncated", "ok",
     VLLM | {f"{R}.top_k": 100, f"{R}.logprobs_mode": "raw_logprobs"}, None, ""),
    ("rollout-truncated", "warning",
     VLLM | {f"{R}.temperature": 0.9, f"{R}.logprobs_mode": "raw_logprobs"}, None, "=processed"),
    ("rollout-truncated", "n/a", VLLM | {f"{R}.name": "sglang", f"{R}.top_k": 100}, None, ""),
    ("rollout-truncated", "n/a",
     VLLM | {f"{R}.calculate_log_probs": False, f"{R}.top_k": 100}, None, ""),
    ("algorithm-estimator", "ok", {"algorithm.adv_estimator": "rloo"}, None, ""),
    ("algorithm-estimator", "error", {"algorithm.adv_estimator": "rlooo"}, None, "=rloo"),
    ("algorithm-loss", "error",
     {f"{A}.policy_loss.loss_mode": "gsppo", f"{A}.loss_agg_mode": "token-mean"}, None, "=gspo"),
    ("algorithm-loss", "ok",
     {f"{A}.policy_loss.loss_mode": "gspo", f"{A}.loss_agg_mode": "token-mean"}, None, ""),
    ("algorithm-remax", "error", {"algorithm.adv_estimator": "remax"}, None, "use_v1=False"),
    ("algorithm-remax", "ok", {"algorithm.adv_estimator": "remax", "trainer.use_v1": False}, None,
     "True"),
    ("algorithm-rollout-correction", "ok",
     {f"{IS}.rollout_is": "token", f"{IS}.rollout_is_threshold": "0.5_4.0",
      f"{R}.calculate_log_probs": True}, None, "0.5..4.0 (IcePop"),
    ("algorithm-rollout-correction", "error",
     {f"{IS}.rollout_is": "token", f"{IS}.rollout_is_threshold": 0.54,
      f"{R}.calculate_log_probs": True}, None, "unquoted"),
    ("algorithm-rollout-correction", "error",
     {f"{IS}.rollout_is": "token", f"{IS}.rollout_is_threshold": "4.0_0.5",
      f"{R}.calculate_log_probs": True}, None, "low <= high"),
    ("algorithm-rollout-correction", "ok",
     {f"{IS}.rollout_is": "token", f"{IS}.rollout_is_threshold": "1.0_1.0",
      f"{R}.calculate_log_probs": True}, None, ""),
    ("algorithm-rollout-correction", "error",
     {f"{IS}.rollout_is": "token", f"{IS}.rollout_is_threshold": 2.0,
      f"{R}.calculate_log_probs": False}, None, "calculate_log_probs=True"),
    ("rollout-name", "ok", {f"{R}.name": "vllm"}, None, "vllm, sglang"),
    ("rollout-name", "error", {f"{R}.name": "vlm"}, None, f"{R}.name=vllm"),
    ("algorithm-idle-reference", "warning",
     {f"{A}.use_kl_loss": True, f"{A}.kl_loss_coef": 0.001, "algorithm.use_kl_in_reward": True,
      "algorithm.kl_ctrl.kl_coef": 0.001}, None, "counted twice"),
    ("algorithm-idle-reference", "warning",
     {f"{A}.use_kl_loss": True, f"{A}.kl_loss_coef": 0.0}, None, "use_kl_loss=False"),
    ("algorithm-idle-reference", "ok",
     {f"{A}.use_kl_loss": True, f"{A}.kl_loss_coef": 0.001}, None, ""),
    ("algorithm-clip", "ok", {f"{A}.clip_ratio_low": 0.2, f"{A}.clip_ratio_high": 0.2}, None, ""),
    ("algorithm-clip", "warning", {f"{A}.clip_ratio_low": 0.3, f"{A}.clip_ratio_high": 0.2}, None,
     "low <= high"),
    ("algorithm-clip", "error", {f"{A}.clip_ratio_c": 1.0}, None, "> 1"),
    ("algorithm-clip", "n/a", {f"{A}.policy_loss.loss_mode": "cispo", f"{A}.clip_ratio_low": 10.0},
     None, "cispo"),
    ("trainer-mode", "error",
     {"trainer.v1.trainer_mode": "separate_async", "data.train_batch_size": 64,
      f"{A}.ppo_mini_batch_size": 64, "trainer.v1.separate_async.parameter_sync_step": 4,
      f"{R}.nnodes": 1, f"{R}.checkpoint_engine.backend": "nccl"}, None, "=256"),
    ("trainer-mode", "ok",
     {"trainer.v1.trainer_mode": "separate_async", "data.train_batch_size": 256,
      f"{A}.ppo_mini_batch_size": 64, "trainer.v1.separate_async.parameter_sync_step": 4,
      f"{R}.nnodes": 1, f"{R}.checkpoint_engine.backend": "nccl"}, None, ""),
    ("trainer-mode", "error", {"trainer.v1.trainer_mode": "separate"}, None, "separate_async"),
    ("engine-bridge", "error", megatron(1, 1, 1) | {f"{M}.use_mbridge": False}, None, "=True"),
    ("engine-bridge", "ok", megatron(1, 1, 1) | {f"{M}.use_mbridge": True}, None, ""),
    ("engine-bridge", "error", megatron(1, 1, 1) | {f"{M}.use_dist_checkpointing": True}, None,
     "dist_checkpointing_path"),
    ("reward-legacy-keys", "error", {"reward_model.reward_manager": "dapo"}, None,
     "reward.reward_manager.name=dapo"),
    ("reward-legacy-keys", "error",
     {"custom_reward_function.path": "/r.py", "reward.custom_reward_function.path": None}, None,
     "-> reward.custom_reward_function.path=/r.py"),
    ("reward-legacy-keys", "error",
     {"reward_model.reward_kwargs.max_resp_len": 8}, None, "+reward.reward_kwargs.max_resp_len=8"),
    ("reward-legacy-keys", "error",
     {"reward_model.reward_manager": "dapo", "reward.reward_manager.name": "naive"}, None,
     "contradicts"),
    ("reward-legacy-keys", "ok", {"reward.reward_manager.name": "dapo"}, None, "0 legacy"),
    ("reward-manager", "ok", {"reward.reward_manager.name": "dapo"}, None, "manager: dapo"),
    ("reward-manager", "error", {"reward.reward_manager.name": "dappo"}, None, "=dapo"),
    ("steps-checkpoints-kept", "n/a", {"trainer.save_freq": -1}, None, ""),
    ("steps-checkpoints-kept", "warning",
     {"trainer.save_freq": 10, "trainer.total_training_steps": 100}, None, "all checkpoints"),
    ("steps-checkpoints-kept", "ok",
     {"trainer.save_freq": 10, "trainer.total_training_steps": 30}, None, ""),
    ("data-truncation", "warning", LONG | {"data.truncation": "error"}, None, "ends the job"),
    ("data-truncation", "note", LONG | {"data.truncation": "left"}, None, "loses its beginning"),
    ("data-truncation", "ok", LONG | {"data.filter_overlong_prompts": True}, None, ""),
    ("paths-writes", "error", {"trainer.default_local_dir": "checkpoints/a/b"}, None, "relative"),
    ("paths-writes", "ok", {"trainer.default_local_dir": "/share/a"}, None, ""),
    ("paths-writes", "warning", {"trainer.default_local_dir": "/tmp/a"}, None, "local to each"),
    ("paths-writes", "error",
     {"trainer.default_local_dir": "/s/a", "trainer.rollout_data_dir": "dump"}, None,
     "stays on"),
    ("paths-data", "warning", {"data.train_files": "train.parquet"}, None, "relative"),
    ("paths-data", "ok", {"data.train_files": ["/a.parquet", "hdfs://x/b.parquet"]}, None, ""),
    ("env-secrets", "error", {"trainer.wandb_api_key": "abcdef0123456789"}, None, "********"),
    ("env-secrets", "ok", {"trainer.wandb_api_key": "${oc.env:WANDB_API_KEY}"}, None, ""),
    ("env-secrets", "ok", {f"{A}.ppo_max_token_len_per_gpu": 5, "data.prompt_token": ""}, None, ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "wanted", "settings", "model", "part"),
    CASES,
    ids=[f"{case[0]}-{case[1]}-{index}" for index, case in enumerate(CASES)],
)
def test_edge(
    setup_of: Callable[..., Setup],
    rule: str,
    wanted: str,
    settings: dict[str, Any],
    model: dict[str, Any] | None,
    part: str,
) -> None:
    state, text = verdict(rule, setup_of(settings, model))
    assert (state, part in text) == (wanted, True), text


def test_a_secret_is_never_repeated(setup_of: Callable[..., Setup]) -> None:
    _, text = verdict("env-secrets", setup_of({"x.hub_token": "hf_0123456789abcdef"}))
    assert "hf_0123" not in text


@pytest.mark.parametrize(
    ("size", "longest", "manager", "wanted", "part"),
    [
        (4096, 8192, "dapo", "ok", "0 < len 4096 <= max_resp_len 8192"),
        (8192, 8192, "dapo", "ok", ""),
        (8193, 8192, "dapo", "error", "len=4096"),
        (0, 8192, "dapo", "error", "len="),
        (4096, 4096, "dapo", "error", "max_resp_len=8192"),
        (4096, None, "dapo", "error", "+reward.reward_kwargs.max_resp_len=8192"),
        (4096, 8192, "naive", "error", "reward_manager.name=dapo"),
    ],
)
def test_overlong_buffer(
    setup_of: Callable[..., Setup],
    size: int,
    longest: int | None,
    manager: str,
    wanted: str,
    part: str,
) -> None:
    settings = LONG | {
        "reward.reward_manager.name": manager,
        "reward.reward_kwargs.overlong_buffer_cfg": {"enable": True, "len": size},
        "reward.reward_kwargs.max_resp_len": longest,
    }
    state, text = verdict("reward-overlong", setup_of(settings))
    assert (state, part in text) == (wanted, True), text


def test_overlong_buffer_off(setup_of: Callable[..., Setup]) -> None:
    settings = {"reward.reward_kwargs.overlong_buffer_cfg": {"enable": False, "len": -1}}
    assert verdict("reward-overlong", setup_of(settings))[0] == "n/a"


@pytest.mark.parametrize(
    ("rows", "wanted", "part"),
    [
        (100, "error", "0 steps per epoch"),
        (127, "error", "data.train_batch_size=127"),
        (128, "ok", "= 1 steps per epoch, 0 rows unused"),
        (300, "note", "2 steps per epoch, 44 rows unused"),
    ],
)
def test_steps_of_an_epoch(
    setup_of: Callable[..., Setup], rows: int, wanted: str, part: str
) -> None:
    setup = setup_of({"data.train_batch_size": 128}, rows=rows)
    state, text = verdict("steps-epoch", setup)
    assert (state, part in text) == (wanted, True), text


def test_unknown_rows_are_not_guessed(setup_of: Callable[..., Setup]) -> None:
    assert verdict("steps-epoch", setup_of({"data.train_batch_size": 128}))[0] == "unknown"
    assert verdict("steps-frequencies", setup_of({"trainer.save_freq": 5}))[0] == "unknown"


@pytest.mark.parametrize(("save", "wanted"), [(2, "ok"), (3, "warning"), (-1, "warning")])
def test_save_frequency_against_steps(
    setup_of: Callable[..., Setup], save: int, wanted: str
) -> None:
    settings = {
        "data.train_batch_size": 128,
        "trainer.total_epochs": 1,
        "trainer.save_freq": save,
        "trainer.resume_mode": "auto",
    }
    assert verdict("steps-frequencies", setup_of(settings, rows=300))[0] == wanted


@pytest.mark.parametrize(
    ("rows", "prompts", "n", "wanted", "part"),
    [
        (64, 2, 1, "ok", "32 x n 1 = 32"),
        (64, 2, 32, "warning", "32 times too large"),
        (2, 2, 1, "warning", "avg@32"),
        (2, 2, 32, "ok", "1 x n 32 = 32"),
    ],
)
def test_validation_samples(
    setup_of: Callable[..., Setup], rows: int, prompts: int, n: int, wanted: str, part: str
) -> None:
    setup = setup_of({f"{R}.val_kwargs.n": n}, val_rows=rows, val_prompts=prompts)
    state, text = verdict("rollout-validation-size", setup)
    assert (state, part in text) == (wanted, True), text


def test_reference_sizes_follow_the_actor(setup_of: Callable[..., Setup]) -> None:
    base = machine(4, 8) | megatron(4, 1, 1, 8, 1) | {f"{A}.use_kl_loss": True}
    ref = {key.replace(".actor.", ".ref."): value for key, value in megatron(4, 1, 1, 8, 1).items()}
    assert verdict("parallel-reference", setup_of(base | ref))[0] == "ok"
    ref["actor_rollout_ref.ref.megatron.tensor_model_parallel_size"] = 1
    assert verdict("parallel-reference", setup_of(base | ref))[0] == "error"


@pytest.mark.parametrize("override", ["0", "1"])
def test_environment_set_twice(setup_of: Callable[..., Setup], override: str) -> None:
    job = {
        "working_dir": "./",
        "env_vars": {"NCCL_DEBUG": "INFO", "WANDB_MODE": "offline",
                     "RAY_OVERRIDE_JOB_RUNTIME_ENV": override},
    }  # fmt: skip
    init = "ray_kwargs.ray_init.runtime_env"
    setup = setup_of(
        {f"{init}.env_vars.NCCL_DEBUG": "WARN", f"{init}.working_dir": "/x"}, runtime_env=job
    )
    state, text = verdict("env-merge", setup)
    if override == "1":
        assert state == "n/a"
        return
    assert state == "error"
    assert f"{init}.env_vars.NCCL_DEBUG" in text
    assert f"{init}.working_dir" in text
    assert "WANDB_MODE" not in text


def test_loggers_need_places(setup_of: Callable[..., Setup]) -> None:
    settings = {"trainer.logger": ["console", "file"]}
    state, text = verdict("paths-loggers", setup_of(settings))
    assert state == "error"
    assert "VERL_FILE_LOGGER_PATH" in text
    given = setup_of(settings, environment={"VERL_FILE_LOGGER_PATH": "/s/attempt-1.jsonl"})
    assert verdict("paths-loggers", given)[0] == "ok"
    assert verdict("paths-loggers", setup_of({"trainer.logger": ["consol"]}))[0] == "error"


def test_paths_that_the_doctor_saw(setup_of: Callable[..., Setup]) -> None:
    settings = {"data.train_files": ["/share/a.parquet"], "trainer.default_local_dir": "/local/c"}
    state, text = verdict("paths-seen", setup_of(settings, shared=("/share",)))
    assert state == "warning"
    assert "/local/c" in text
    assert "/share/a.parquet lies" not in text
    assert verdict("paths-seen", setup_of(settings))[0] == "n/a"


def test_settings_that_the_engine_does_not_know(
    setup_of: Callable[..., Setup], recipes: Any
) -> None:
    names = known_names(recipes)
    settings = {f"{R}.name": "sglang", f"{R}.engine_kwargs.sglang.disable_radix_cache": True}
    assert verdict("engine-kwargs", setup_of(settings, names=names))[0] == "ok"
    settings[f"{R}.engine_kwargs.sglang.disable_radix_cach"] = True
    state, text = verdict("engine-kwargs", setup_of(settings, names=names))
    assert state == "error"
    assert "disable_radix_cache" in text
    assert verdict("engine-kwargs", setup_of(settings))[0] == "unknown"


@pytest.mark.parametrize(
    ("name", "wanted", "part"),
    [
        ("moe_grouped_gemm", "ok", ""),
        ("no_masked_softmax_fusion", "error", "masked_softmax_fusion=False"),
        ("swiglu", "error", "remove "),
        ("moe_groupd_gemm", "error", "moe_grouped_gemm"),
    ],
)
def test_overrides_that_the_provider_lacks(
    setup_of: Callable[..., Setup], recipes: Any, name: str, wanted: str, part: str
) -> None:
    settings = megatron(1, 1, 1) | {f"{OVERRIDE}.{name}": True}
    state, text = verdict("engine-overrides", setup_of(settings, names=known_names(recipes)))
    assert (state, part in text) == (wanted, True), text


def test_group_filter_where_nothing_reads_it(setup_of: Callable[..., Setup], tree_091: Any) -> None:
    settings = {"algorithm.filter_groups.enable": True}
    old, new = setup_of(settings), setup_of(settings)
    new.tree = tree_091
    assert verdict("algorithm-filter-groups", new)[0] == "ok"
    new.values["trainer"] = {"v1": {"sampler": {"custom_sampler": {"path": "x"}}}}  # type: ignore[index]
    assert verdict("algorithm-filter-groups", new)[0] == "warning"
    reads = "filter_groups" in "".join(
        path.read_text(encoding="utf-8")
        for path in (old.tree.package / "trainer/ppo/v1").glob("*.py")  # type: ignore[union-attr]
    )
    assert verdict("algorithm-filter-groups", old)[0] == ("ok" if reads else "error")


def test_a_family_needs_what_its_makers_say(setup_of: Callable[..., Setup]) -> None:
    state, text = verdict("family-required", setup_of(megatron(1, 1, 1), HY3))
    assert state == "error"
    assert text.count("required for any recipe") == 9
    assert verdict("family-required", setup_of(megatron(1, 1, 1), QWEN3_8B))[0] == "n/a"
    assert verdict("family-required", setup_of(megatron(1, 1, 1)))[0] == "unknown"


def test_musa_needs_its_platform(setup_of: Callable[..., Setup]) -> None:
    settings = {"trainer.device": "musa"}
    assert verdict("engine-platform", setup_of(settings))[0] == "unknown"
    state, text = verdict("engine-platform", setup_of(settings, runtime_env={}))
    assert state == "error"
    assert "VERL_USE_EXTERNAL_MODULES" in text


@pytest.mark.parametrize(
    ("tp", "card", "wanted", "part"),
    [
        (16, 95.6, "ok", "62.1 GiB"),
        (8, 95.6, "error", "tensor_model_parallel_size=16"),
        (8, 140.4, "ok", ""),
        (8, None, "unknown", "is unknown"),
    ],
)
def test_rollout_weights_and_the_card(
    setup_of: Callable[..., Setup], hy3: Any, tp: int, card: float | None, wanted: str, part: str
) -> None:
    settings = machine(16, 8) | LONG | {f"{R}.tensor_model_parallel_size": tp}
    settings |= {f"{R}.gpu_memory_utilization": 0.65}
    setup = setup_of(settings, hy3.model.config, gpu_memory=card)
    state, text = verdict("memory-rollout", setup)
    assert (state, part in text) == (wanted, True), text


@pytest.mark.parametrize(("card", "wanted"), [(68, "ok"), (63, "warning")])
def test_training_peak_and_the_card(hy3: Any, card: float, wanted: str) -> None:
    setup = Setup(hy3.composition.values, hy3.tree, hy3.model, Known(gpu_memory=card))
    assert verdict("memory-training", setup)[0] == wanted


def test_resume_with_another_number_of_ranks(setup_of: Callable[..., Setup], tmp_path: Any) -> None:
    actor = tmp_path / "global_step_40" / "actor"
    actor.mkdir(parents=True)
    for rank in range(16):
        (actor / f"model_world_size_16_rank_{rank}.pt").touch()
    (tmp_path / "global_step_40" / "data.pt").touch()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("40\n ")
    place = {"trainer.default_local_dir": str(tmp_path), "trainer.resume_mode": "auto"}
    state, text = verdict("resume-world-size", setup_of(machine(4, 8) | place))
    assert state == "error"
    assert "16 ranks, the recipe has 32" in text
    assert verdict("resume-world-size", setup_of(machine(2, 8) | place))[0] == "ok"
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("")
    assert verdict("resume-world-size", setup_of(machine(2, 8) | place))[0] == "unknown"
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("60")
    state, text = verdict("resume-world-size", setup_of(machine(2, 8) | place))
    assert state == "error"
    assert "start from step 0" in text


def test_resume_of_a_checkpoint_that_can_be_redistributed(
    setup_of: Callable[..., Setup], tmp_path: Any
) -> None:
    (tmp_path / "global_step_40" / "actor" / "dist_ckpt").mkdir(parents=True)
    (tmp_path / "global_step_40" / "data.pt").touch()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("40")
    place = {"trainer.default_local_dir": str(tmp_path), "trainer.resume_mode": "auto"}
    state, text = verdict("resume-world-size", setup_of(machine(4, 8) | place))
    assert state == "note" and "migrate_megatron_checkpoint_layout.py" in text
    # As verl writes it now.
    shutil.rmtree(tmp_path / "global_step_40" / "actor" / "dist_ckpt")
    (tmp_path / "global_step_40" / "actor" / "optimizer" / "dist_ckpt").mkdir(parents=True)
    state, text = verdict("resume-world-size", setup_of(machine(4, 8) | place))
    assert state == "note" and "--world-size 32" in text
    # As on two GPUs: an optimizer without expert parallel weights, and one with them.
    config = tmp_path / "global_step_40" / "actor" / "transformer_config.json"
    config.write_text('{"expert_model_parallel_size": 1}', encoding="utf-8")
    layout = machine(1, 8) | megatron(1, 1, 1, 8, 1) | place
    state, text = verdict("resume-world-size", setup_of(layout))
    assert state == "error" and "EP 1, the recipe has EP 8" in text
    weights = {"actor_rollout_ref.actor.checkpoint.load_contents": ["model"]}
    assert verdict("resume-world-size", setup_of(layout | weights))[0] == "note"
    config.write_text('{"expert_model_parallel_size": 4}', encoding="utf-8")
    assert verdict("resume-world-size", setup_of(layout))[0] == "note"


def test_every_rule_has_a_test_on_both_sides() -> None:
    seen: dict[str, set[str]] = {}
    for rule, wanted, *_ in CASES:
        seen.setdefault(rule, set()).add(wanted)
    elsewhere = {"reward-overlong", "steps-epoch", "steps-frequencies", "rollout-validation-size",
                 "parallel-reference", "env-merge", "paths-loggers", "paths-seen",
                 "engine-kwargs", "engine-overrides", "algorithm-filter-groups", "family-required",
                 "engine-platform", "resume-world-size", "memory-rollout",
                 "memory-training", "critic-sizes", "critic-tokens",
                 "critic-memory",
                 # test_limits.py
                 "steps-end", "steps-warmup", "steps-timeout", "batch-agent-workers",
                 # test_weights.py
                 "rollout-experts"}  # fmt: skip
    lacking = [
        rule
        for rule in RULES
        if rule not in elsewhere and len(seen.get(rule, set()) - {"n/a", "unknown"}) < 2
    ]
    assert lacking == []


def test_what_the_way_of_launching_decides(setup_of: Callable[..., Setup]) -> None:
    settings = {"trainer.default_local_dir": "ckpt", "data.train_files": "train.parquet"}
    assert verdict("paths-writes", setup_of(settings))[0] == "error"
    assert verdict("paths-writes", setup_of(settings, packaged=False))[0] == "warning"
    assert verdict("paths-data", setup_of(settings, packaged=False))[0] == "n/a"
    loggers = {"trainer.logger": ["tensorboard"]}
    assert verdict("paths-loggers", setup_of(loggers))[0] == "error"
    assert verdict("paths-loggers", setup_of(loggers, packaged=False))[0] != "error"


def test_the_locks_engines_are_not_those_of_any_script(
    setup_of: Callable[..., Setup], recipes: Path
) -> None:
    settings = {f"{R}.name": "vllm", f"{R}.engine_kwargs.vllm.no_such_setting": 1}
    names = known_names(recipes)
    assert verdict("engine-kwargs", setup_of(settings, names=names))[0] == "error"
    assert verdict("engine-kwargs", setup_of(settings, names=names, foreign=True))[0] == "warning"


def test_a_value_that_is_not_known_stops_the_rule(setup_of: Callable[..., Setup]) -> None:
    gpus = NotKnown("`nvidia-smi -L | wc -l`", "run.sh:1")
    settings = machine(1, 8) | batch(64, 8, False) | {"trainer.n_gpus_per_node": gpus}
    with pytest.raises(ValueUnknown, match=r"trainer\.n_gpus_per_node is set by `nvidia-smi"):
        setup_of(settings).world  # noqa: B018
    nested_value = {f"{M}.override_transformer_config.recompute_num_layers": gpus}
    with pytest.raises(ValueUnknown, match="recompute_num_layers is set by"):
        setup_of(nested_value).override.get("recompute_num_layers")
