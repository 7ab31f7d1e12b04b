"""Token budgets and context lengths."""

from __future__ import annotations

from reprise.recipe.rules.base import Judgement, NotApplicable, Rule, Source, Undecided, divisors
from reprise.recipe.setup import Setup

__all__ = ["RULES"]

_ROLLOUT = "actor_rollout_ref.rollout"
_BUDGET_SOURCE = Source("utils/seqlen_balancing.py", "assert max_token_len >= max_seq_len")


def _budget(setup: Setup, out: Judgement, key: str, dynamic: bool) -> None:
    if not dynamic:
        raise NotApplicable("use_dynamic_bsz is off: micro batches are counted in samples")
    budget, need, cp = setup.integer(key), setup.length, setup.cp
    have = budget * cp
    shown = f"{budget} x CP {cp} = {have:,} >= prompt {setup.prompt} + response {setup.response}"
    out.show(f"{shown} = {need:,}; slack {have / need:.2f}x" if need else shown)
    if have < need:
        found: dict[str, object] = {"budget": budget, "cp": cp, "have": have, "need": need}
        found |= {"setting": key, "tokens": -(-need // cp)}
        larger = _larger_cp(setup, budget, need)
        if larger:
            out.error(key, "recipe-tokens-actor.too-few-or-cp", larger=larger, **found)
        else:
            out.error(key, "recipe-tokens-actor.too-few", **found)
    elif have == need:
        out.warn(key, "recipe-tokens-actor.no-slack", have=have, setting=key, tokens=2 * budget)


def _larger_cp(setup: Setup, budget: int, need: int) -> str:
    """A context parallel size that is enough, as an override; empty when there is none."""
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
    return f"{key}={legal[0]}" if legal else ""


def _actor_budget(setup: Setup, out: Judgement) -> None:
    _budget(setup, out, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu", setup.dynamic)


def _ref_budget(setup: Setup, out: Judgement) -> None:
    if not setup.reference:
        raise NotApplicable("the recipe does not load a reference model")
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
                "recipe-length-agree.differs",
                rollout=rollout,
                name=name,
                data=data,
            )


def _model_len(setup: Setup, out: Judgement) -> None:
    stated = setup.get(f"{_ROLLOUT}.max_model_len")
    if stated is None:
        limit = setup.model.max_positions if setup.model else None
        shown = f"{limit:,}" if limit else "unknown"
        out.show(f"max_model_len is not set: taken from the model's positions ({shown})")
        if limit and limit < setup.length:
            key = "data.max_response_length"
            out.error(
                key,
                "recipe-length-max-model-len.model-too-short",
                length=setup.length,
                limit=limit,
                response=limit - setup.prompt,
            )
        return
    shown = f"prompt {setup.prompt} + response {setup.response} = {setup.length:,}"
    out.show(f"max_model_len {stated:,} >= {shown}")
    if stated < setup.length:
        key = f"{_ROLLOUT}.max_model_len"
        out.error(
            key,
            "recipe-length-max-model-len.too-short",
            stated=stated,
            needed=shown,
            length=setup.length,
        )


def _positions(setup: Setup, out: Judgement) -> None:
    if setup.model is None or setup.model.max_positions is None:
        raise Undecided("the model's max_position_embeddings is unknown (--model-config)")
    limit = setup.model.max_positions
    length = setup.get(f"{_ROLLOUT}.max_model_len", setup.length)
    out.show(f"{length:,} <= max_position_embeddings {limit:,} of {setup.model.origin}")
    if length > limit:
        key = f"{_ROLLOUT}.max_model_len"
        out.error(
            key,
            "recipe-length-model-limit.too-long",
            length=length,
            limit=limit,
            origin=setup.model.origin,
        )


def _batched(setup: Setup, out: Judgement) -> None:
    if setup.engine != "vllm":
        raise NotApplicable(
            f"{setup.engine or 'the engine'} does not use this setting as vLLM does"
        )
    chunked = bool(setup.get(f"{_ROLLOUT}.enable_chunked_prefill", True))
    batched = setup.integer(f"{_ROLLOUT}.max_num_batched_tokens", 8192)
    length = int(setup.get(f"{_ROLLOUT}.max_model_len", setup.length))
    out.show(f"chunked prefill {chunked}; max_num_batched_tokens {batched:,}, length {length:,}")
    if not chunked and batched < length:
        key = f"{_ROLLOUT}.max_num_batched_tokens"
        out.error(key, "recipe-length-batched-tokens.too-few", batched=batched, length=length)


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
