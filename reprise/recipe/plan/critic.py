"""What a critic of the actor's size adds to the plan of a recipe, in bytes.

The critic has the actor's parallel sizes (rule recipe-critic-sizes), so its terms are the actor's.
"""

from __future__ import annotations

from reprise.recipe.plan.memory import Memory
from reprise.recipe.setup import Setup

__all__ = ["with_critic_on_card", "with_critic_on_disk", "with_critic_on_host"]

_STATE = {"weights": "param", "gradients": "param", "optimizer": "optimizer"}


def _offloaded(setup: Setup, what: str) -> bool:
    node = "megatron" if setup.megatron else "fsdp"
    return bool(setup.get(f"critic.{node}.{what}_offload", False))


def with_critic_on_card(setup: Setup, actor: Memory) -> Memory:
    """`actor` (the peak of its update) and what of the critic lies on the card at that moment."""
    if not setup.critic:
        return actor
    held = sum(
        actor.terms.get(term, 0) for term, what in _STATE.items() if not _offloaded(setup, what)
    )
    return Memory({**actor.terms, "critic (not offloaded)": held})


def with_critic_on_host(setup: Setup, host: Memory) -> Memory:
    """`host` (a node's memory while the rollout has the cards) and the critic's share of it."""
    if not setup.critic:
        return host
    terms = dict(host.terms)
    for term, what in (("actor weights", "param"), ("optimizer", "optimizer")):
        if term in host.terms and _offloaded(setup, what):
            terms[f"critic's {term.removeprefix('actor ')}"] = host.terms[term]
    return Memory(terms)


def with_critic_on_disk(setup: Setup, checkpoint: Memory) -> Memory:
    """`checkpoint` with that of the critic, which verl writes beside it."""
    if not setup.critic:
        return checkpoint
    return Memory({**checkpoint.terms, "critic": checkpoint.total})
