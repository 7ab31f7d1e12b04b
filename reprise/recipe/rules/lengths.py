"""Token budgets and context lengths."""

from __future__ import annotations

from reprise.recipe.rules.base import Judgement, NotApplicable, Rule, Source, Undecided, divisors
from reprise.recipe.setup import Setup

__all__ = ["RULES"]

_ROLLOUT = "actor_rollout_ref.rollout"
_BUDGET_SOURCE = Source("utils/seqlen_balancing.py", "assert max_token_len >= max_seq_len")


def _budget(setup: Setup, out: Judgement, key: str, dynamic: bool) -> None:
    if not dynamic:
        raise NotApplicable("dynamic batch size is off: micro batches are counted in samples")
    budget, need, cp = setup.integer(key), setup.length, setup.cp
    have = budget * cp
    shown = f"{budget} x CP {cp} = {have:,} >= prompt {setup.prompt} + response {setup.response}"
    out.show(f"{shown} = {need:,}; slack {have / need:.2f}x" if need else shown)
    if have < need:
        out.error(
            key,
            f"budget {budget} x CP {cp} = {have:,} < {need:,} tokens of the longest sequence",
            f"{key}={-(-need // cp)} or more{_larger_cp(setup, budget, need)}",
        )
    elif have == need:
        out.warn(
            key,
            f"no slack: {have:,} tokens hold exactly one longest sequence",
            f"{key}={2 * budget}",
        )


def _larger_cp(setup: Setup, budget: int, need: int) -> str:
    """A context parallel size that would do, in words; empty when there is none."""
    if not budget:
        return ""
    least = -(-need // budget)
    across = setup.tp * setup.pp
    ranks = setup.world // across if across and setup.world % across == 0 else 0
    legal = [size for size in divisors(ranks) if size >= least] if ranks else []
    if not setup.megatron:
        key = "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size"
    else:
        key = "actor_rollout_ref.actor.megatron.context_parallel_size"
    return f", or {key}={legal[0]} (at least {least})" if legal else ""


def _actor_budget(setup: Setup, out: Judgement) -> None:
    _budget(setup, out, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu", setup.dynamic)


def _ref_budget(setup: Setup, out: Judgement) -> None:
    if not setup.reference:
        raise NotApplicable("no reference model is loaded")
    dynamic = bool(setup.get("actor_rollout_ref.ref.log_prob_use_dynamic_bsz", setup.dynamic))
    _budget(setup, out, "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", dynamic)


def _rollout_budget(setup: Setup, out: Judgement) -> None:
    dynamic = bool(setup.get(f"{_ROLLOUT}.log_prob_use_dynamic_bsz", setup.dynamic))
    _budget(setup, out, f"{_ROLLOUT}.log_prob_max_token_len_per_gpu", dynamic)


def _lengths_agree(setup: Setup, out: Judgement) -> None:
    for name, data in (("prompt_length", setup.prompt), ("response_length", setup.response)):
        rollout = setup.integer(f"{_ROLLOUT}.{name}", data)
        out.show(f"rollout.{name} {rollout} == data.max_{name} {data}")
        if rollout != data:
            out.warn(
                f"{_ROLLOUT}.{name}",
                "recipe-length-agree.but-data-max",
                rollout=rollout,
                name=name,
                data=data,
            )


def _model_len(setup: Setup, out: Judgement) -> None:
    stated = setup.get(f"{_ROLLOUT}.max_model_len")
    if stated is None:
        limit = setup.model.max_positions if setup.model else None
        words = f"{limit:,}" if limit else "not known"
        out.show(f"max_model_len is not set: derived from the model's positions ({words})")
        if limit and limit < setup.length:
            key = "data.max_response_length"
            out.error(
                key,
                "recipe-length-max-model-len.tokens-but-model",
                length=setup.length,
                limit=limit,
                setting=key,
                limit2=limit - setup.prompt,
            )
        return
    shown = f"prompt {setup.prompt} + response {setup.response} = {setup.length:,}"
    out.show(f"max_model_len {stated:,} >= {shown}")
    if stated < setup.length:
        key = f"{_ROLLOUT}.max_model_len"
        out.error(
            key,
            "recipe-length-max-model-len.longest-answers-fail",
            stated=stated,
            shown=shown,
            setting=key,
            length=setup.length,
        )


def _positions(setup: Setup, out: Judgement) -> None:
    if setup.model is None or setup.model.max_positions is None:
        raise Undecided("the model's max_position_embeddings is not known (--model-config)")
    limit = setup.model.max_positions
    length = setup.get(f"{_ROLLOUT}.max_model_len", setup.length)
    out.show(f"{length:,} <= max_position_embeddings {limit:,} of {setup.model.origin}")
    if length > limit:
        key = f"{_ROLLOUT}.max_model_len"
        out.error(
            key,
            "recipe-length-model-limit.max-position-embeddings",
            length=length,
            limit=limit,
            origin=setup.model.origin,
            setting=key,
        )


def _batched(setup: Setup, out: Judgement) -> None:
    if setup.engine != "vllm":
        raise NotApplicable(f"{setup.engine or 'the engine'} does not read it as vLLM does")
    chunked = bool(setup.get(f"{_ROLLOUT}.enable_chunked_prefill", True))
    batched = setup.integer(f"{_ROLLOUT}.max_num_batched_tokens", 8192)
    length = int(setup.get(f"{_ROLLOUT}.max_model_len", setup.length))
    out.show(f"chunked prefill {chunked}; max_num_batched_tokens {batched:,}, length {length:,}")
    if not chunked and batched < length:
        key = f"{_ROLLOUT}.max_num_batched_tokens"
        out.error(
            key,
            "recipe-length-batched-tokens.without-chunked-prefill",
            batched=batched,
            length=length,
            setting=key,
        )


RULES = (
    Rule("recipe-tokens-actor", _BUDGET_SOURCE, _actor_budget),
    Rule("recipe-tokens-ref", _BUDGET_SOURCE, _ref_budget),
    Rule("recipe-tokens-rollout", _BUDGET_SOURCE, _rollout_budget),
    Rule(
        "recipe-length-agree",
        Source("trainer/config/rollout/rollout.yaml", "prompt_length: ${oc.select:data.max_prompt"),
        _lengths_agree,
    ),
    Rule(
        "recipe-length-max-model-len",
        Source(
            "workers/rollout/vllm_rollout/vllm_async_server.py",
            "max_possible_tokens = self.config.max_model_len - len(prompt_ids)",
        ),
        _model_len,
    ),
    Rule(
        "recipe-length-model-limit",
        Source(
            "workers/rollout/vllm_rollout/vllm_async_server.py",
            "if self.config.max_model_len > max_position_embeddings:",
        ),
        _positions,
    ),
    Rule(
        "recipe-length-batched-tokens",
        Source("vLLM 0.23.0 config/scheduler.py: max_num_batched_tokens without chunked prefill"),
        _batched,
    ),
)
