"""Batch, group and micro-batch sizes."""

from __future__ import annotations

from math import gcd, lcm

from reprise.recipe.rules.base import (
    Judgement,
    NotApplicable,
    Rule,
    Source,
    Undecided,
    choice,
    divisors,
)
from reprise.recipe.setup import Setup

__all__ = ["RULES"]

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
# Estimators with a baseline from the other responses of the same prompt.
_GROUPED = frozenset(
    {"grpo", "grpo_vectorized", "grpo_passk", "gdpo", "rloo", "rloo_vectorized", "opo", "gpg"}
    | {"reinforce_plus_plus_baseline"}
)


def _needs_dp(setup: Setup) -> int:
    if setup.dp is None:
        raise Undecided("the data parallel size is not an integer: see recipe-parallel-world")
    return setup.dp


def _nearest_batches(unit: int, n: int, batch: int, mini: int = 1) -> list[int]:
    """Train batch sizes below and above whose batch x n is a multiple of unit, the nearest first.

    Multiples of the mini batch among them come too, where the nearest are none.
    """
    step = unit // gcd(unit, n)
    both = lcm(step, max(mini, 1))
    found = {batch // one * one + offset for one in (step, both) for offset in (0, one)}
    return sorted((size for size in found if size > 0), key=lambda size: abs(size - batch))


def _divisible(setup: Setup, out: Judgement) -> None:
    samples = setup.train_batch * setup.n
    if setup.dynamic:
        unit, words = _needs_dp(setup), f"DP {setup.dp}"
    elif setup.megatron:
        micro = setup.integer(f"{_ACTOR}.ppo_micro_batch_size_per_gpu", 1)
        unit, words = _needs_dp(setup) * micro, f"DP {setup.dp} x micro {micro}"
    else:
        unit, words = setup.world, f"{setup.nodes} nodes x {setup.gpus_per_node} GPUs"
    shown = f"{setup.train_batch} prompts x n {setup.n} = {samples}; {samples} % ({words} = {unit})"
    out.show(f"{shown} = {samples % unit}")
    if samples % unit:
        sizes = _nearest_batches(unit, setup.n, setup.train_batch, setup.mini_batch)
        out.error(
            "data.train_batch_size",
            "recipe-batch-divisible.not-divisible",
            samples=samples,
            parts=words,
            unit=unit,
            rest=samples % unit,
            sizes=choice(sizes, setup.train_batch),
        )


def _mini_le_train(setup: Setup, out: Judgement) -> None:
    mini, train = setup.mini_batch, setup.train_batch
    out.show(f"mini batch {mini} <= train batch {train}")
    if mini > train:
        key = f"{_ACTOR}.ppo_mini_batch_size"
        if setup.dynamic:
            out.error(
                key,
                "recipe-batch-mini-in-train.padded",
                mini=mini,
                train=train,
                padded=mini * setup.n,
                real=train * setup.n,
            )
        else:
            out.error(key, "recipe-batch-mini-in-train.too-large", mini=mini, train=train)
    elif mini and train % mini:
        key = f"{_ACTOR}.ppo_mini_batch_size"
        out.warn(
            key,
            "recipe-batch-mini-in-train.not-a-multiple",
            train=train,
            mini=mini,
            padded=-(-train // mini) * mini * setup.n,
            size=max(size for size in range(1, mini + 1) if train % size == 0),
        )


def _mini_splits(setup: Setup, out: Judgement) -> None:
    dp = _needs_dp(setup)
    samples = setup.mini_batch * setup.n
    out.show(f"mini {setup.mini_batch} x n {setup.n} = {samples}; {samples} % DP {dp}")
    key = f"{_ACTOR}.ppo_mini_batch_size"
    if samples % dp:
        sizes = choice(_nearest_batches(dp, setup.n, setup.mini_batch), setup.mini_batch)
        out.error(
            key, "recipe-batch-mini-splits.not-divisible", samples=samples, dp=dp, sizes=sizes
        )
        return
    if setup.dynamic:
        return
    micro = setup.integer(f"{_ACTOR}.ppo_micro_batch_size_per_gpu")
    if not micro:
        return  # recipe-batch-micro-set says so
    out.show(f"{samples} / DP {dp} = {samples // dp} a rank; {samples // dp} % micro {micro}")
    if samples // dp % micro:
        legal = [size for size in range(1, micro + 1) if samples // dp % size == 0]
        micro_key = f"{_ACTOR}.ppo_micro_batch_size_per_gpu"
        out.error(
            micro_key,
            "recipe-batch-mini-splits.micro-not-divisible",
            samples=samples // dp,
            micro=micro,
            legal=legal[-1],
        )


def _micro_set(setup: Setup, out: Judgement) -> None:
    if setup.dynamic:
        raise NotApplicable("use_dynamic_bsz packs by tokens: micro batch sizes have no effect")
    wanted = [(_ACTOR, "ppo_micro_batch_size"), (_ROLLOUT, "log_prob_micro_batch_size")]
    if setup.reference:
        wanted.append(("actor_rollout_ref.ref", "log_prob_micro_batch_size"))
    for node, name in wanted:
        old, new = setup.get(f"{node}.{name}"), setup.get(f"{node}.{name}_per_gpu")
        out.show(f"{node}: {name}={old} {name}_per_gpu={new}, exactly one set")
        if old is None and new is None:
            out.error(
                f"{node}.{name}_per_gpu", "recipe-batch-micro-set.missing", node=node, name=name
            )
        elif old is not None and new is not None:
            out.error(f"{node}.{name}", "recipe-batch-micro-set.both-set", node=node, name=name)


def _log_prob_splits(setup: Setup, out: Judgement) -> None:
    """Log-probabilities are computed of a rank's share of the whole batch, in micro batches."""
    if setup.dynamic:
        raise NotApplicable("use_dynamic_bsz packs by tokens: micro batch sizes have no effect")
    dp, samples = _needs_dp(setup), setup.train_batch * setup.n
    if samples % dp:
        raise Undecided("the samples do not divide over the ranks: see recipe-batch-divisible")
    share = samples // dp
    nodes = [] if setup.get("algorithm.rollout_correction.bypass_mode", False) else [_ROLLOUT]
    if setup.reference:
        nodes.append("actor_rollout_ref.ref")
    for node in nodes:
        key = f"{node}.log_prob_micro_batch_size_per_gpu"
        micro = setup.integer(key)
        if not micro:
            continue  # recipe-batch-micro-set says so
        out.show(f"{samples} / DP {dp} = {share} a rank; {share} % {key} {micro} = {share % micro}")
        if share % micro:
            legal = max(size for size in range(1, micro + 1) if share % size == 0)
            values = {"samples": share, "micro": micro, "key": key, "legal": legal}
            out.error(key, "recipe-batch-log-prob-splits.not-divisible", **values)


def _dynamic_agrees(setup: Setup, out: Judgement) -> None:
    rollout = bool(setup.get(f"{_ROLLOUT}.log_prob_use_dynamic_bsz", False))
    out.show(f"actor.use_dynamic_bsz {setup.dynamic} == rollout.log_prob_use_dynamic_bsz {rollout}")
    if setup.dynamic != rollout:
        key = f"{_ROLLOUT}.log_prob_use_dynamic_bsz"
        out.error(key, "recipe-batch-dynamic-agrees.differs", rollout=rollout, actor=setup.dynamic)


def _no_advantage(setup: Setup) -> bool:
    """Whether the loss is that of distillation alone (trainer/distillation/losses.py).

    A policy gradient of the distillation has the divergence from the teacher as its advantage, not
    the reward of a group.
    """
    node = "distillation.distillation_loss"
    return bool(setup.get("distillation.enabled", False)) and not bool(
        setup.get(f"{node}.use_task_rewards", True)
    )


def _workers(setup: Setup, out: Judgement) -> None:
    if setup.get("trainer.use_v1", True):
        raise NotApplicable("the V1 trainer splits a batch unevenly where it must")
    workers, samples = (
        setup.integer(f"{_ROLLOUT}.agent.num_workers", 8),
        setup.train_batch * setup.n,
    )
    out.show(f"{setup.train_batch} x n {setup.n} = {samples}; {samples} % {workers} agent workers")
    if workers > 0 and samples % workers:
        out.error(
            f"{_ROLLOUT}.agent.num_workers",
            "recipe-batch-agent-workers.not-divisible",
            samples=samples,
            workers=workers,
            sizes=choice([size for size in divisors(samples) if size <= 2 * workers], workers),
        )


def _group(setup: Setup, out: Judgement) -> None:
    estimator = str(setup.get("algorithm.adv_estimator", ""))
    if estimator not in _GROUPED:
        raise NotApplicable(f"{estimator} does not use a group baseline")
    if _no_advantage(setup):
        raise NotApplicable("distillation without rewards and policy gradient: no advantage")
    out.show(f"n {setup.n} >= 2 for {estimator}")
    key = f"{_ROLLOUT}.n"
    if setup.n < 2:
        out.warn(key, "recipe-batch-group-size.too-small", estimator=estimator, n=setup.n)


RULES = (
    Rule(
        "recipe-batch-divisible",
        Source("utils/config.py", "real_train_batch_size % minimal_bsz == 0"),
        _divisible,
    ),
    Rule(
        "recipe-batch-mini-in-train",
        Source("workers/config/actor.py", "if train_batch_size < self.ppo_mini_batch_size:"),
        _mini_le_train,
    ),
    Rule(
        "recipe-batch-mini-splits",
        Source(
            "workers/engine_workers.py",
            "assert mini_batch_size % self.engine.get_data_parallel_size() == 0",
        ),
        _mini_splits,
    ),
    Rule(
        "recipe-batch-log-prob-splits",
        Source(
            "workers/engine/utils.py",
            "assert total_data_size % (force_group_size * micro_batch_size_per_gpu) == 0",
        ),
        _log_prob_splits,
    ),
    Rule(
        "recipe-batch-micro-set",
        Source("utils/config.py", "if mbs is None and mbs_per_gpu is None:"),
        _micro_set,
    ),
    Rule(
        "recipe-batch-dynamic-agrees",
        Source(
            "workers/engine_workers.py",
            "assert self.config.actor.use_dynamic_bsz == self.config.rollout.log_prob_use_dynamic",
        ),
        _dynamic_agrees,
    ),
    Rule(
        "recipe-batch-agent-workers",
        Source("experimental/agent_loop/agent_loop.py", "prompts.chunk(len(self.agent_loop"),
        _workers,
    ),
    Rule(
        "recipe-batch-group-size",
        Source("trainer/ppo/core_algos.py", "def compute_grpo_outcome_advantage("),
        _group,
    ),
)
