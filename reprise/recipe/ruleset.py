"""All rules of the check, in the order in which they are reported."""

from __future__ import annotations

from collections.abc import Mapping

from reprise.recipe.rules import (
    algorithm,
    batch,
    critic,
    engine,
    lengths,
    memory,
    parallel,
    places,
    reward,
    rollout,
    steps,
    weights,
)
from reprise.recipe.rules.base import Rule

__all__ = ["ALL_RULES", "rules_for"]

ALL_RULES: tuple[Rule, ...] = (
    *reward.RULES,
    *batch.RULES,
    *lengths.RULES,
    *parallel.RULES,
    *engine.RULES,
    *rollout.RULES,
    *weights.RULES,
    *memory.RULES,
    *critic.RULES,
    *algorithm.RULES,
    *steps.RULES,
    *places.RULES,
)

_SYNCHRONOUS = "verl.trainer.main_ppo"
# Rules about one pool of GPUs that trains and generates in turn, and about steps over the rows of a
# file: fully_async requires train_batch_size=0 (fully_async_rollouter.py), both asynchronous
# trainers have a pool of their own for the rollout (rollout.nnodes, rollout.n_gpus_per_node).
_ONE_POOL = frozenset(
    (
        *("recipe-batch-divisible", "recipe-batch-mini-in-train", "recipe-batch-mini-splits"),
        *("recipe-rollout-replicas", "recipe-rollout-heads", "recipe-rollout-validation-size"),
        *("recipe-steps-epoch", "recipe-steps-frequencies", "recipe-steps-checkpoints-kept"),
        *("recipe-memory-rollout", "recipe-memory-training", "recipe-trainer-mode"),
        *("recipe-algorithm-remax", "recipe-algorithm-filter-groups", "recipe-critic-memory"),
        *("recipe-resume-world-size", "recipe-tokens-rollout", "recipe-steps-end"),
        *("recipe-steps-warmup", "recipe-steps-timeout", "recipe-batch-agent-workers"),
    )
)
_GENERATION = frozenset(
    (
        *("recipe-rollout-name", "recipe-rollout-expert-parallel", "recipe-engine-kwargs"),
        *("recipe-env-merge", "recipe-env-secrets"),
    )
)
_ANY = frozenset(("recipe-env-merge", "recipe-env-secrets"))


def rules_for(entry: str, config: Mapping[str, object]) -> tuple[Rule, ...]:
    """The rules that hold for an entry point ('' for a recipe) with this composed config.

    A module that is not verl's synchronous trainer gets the rules that its trainer does not
    decide; a config without an actor (supervised training, evaluation) those on the environment.
    """
    if entry in ("", _SYNCHRONOUS):
        return ALL_RULES
    if "actor_rollout_ref" not in config:
        return tuple(rule for rule in ALL_RULES if rule.id in _ANY)
    if "main_generation" in entry:
        return tuple(rule for rule in ALL_RULES if rule.id in _GENERATION)
    return tuple(rule for rule in ALL_RULES if rule.id not in _ONE_POOL)
