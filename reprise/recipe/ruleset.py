"""All rules of the check, in the order in which they are reported."""

from __future__ import annotations

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
)
from reprise.recipe.rules.base import Rule

__all__ = ["ALL_RULES"]

ALL_RULES: tuple[Rule, ...] = (
    *reward.RULES,
    *batch.RULES,
    *lengths.RULES,
    *parallel.RULES,
    *engine.RULES,
    *rollout.RULES,
    *memory.RULES,
    *critic.RULES,
    *algorithm.RULES,
    *steps.RULES,
    *places.RULES,
)
