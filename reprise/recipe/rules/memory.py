"""Does it fit the cards: the rollout's weights and cache, and the training's peak."""

from __future__ import annotations

from reprise.recipe.plan.memory import GIB, rollout_memory, smallest_rollout_tp, training_memory
from reprise.recipe.rules.base import Judgement, NotApplicable, Rule, Source, Undecided
from reprise.recipe.setup import Setup

__all__ = ["RULES", "card_memory", "on_cpu"]

_TP = "actor_rollout_ref.rollout.tensor_model_parallel_size"
_UTILIZATION = "actor_rollout_ref.rollout.gpu_memory_utilization"


def on_cpu(setup: Setup) -> bool:
    """Is everything in the host's memory, for lack of a card."""
    return bool(setup.get("trainer.device") == "cpu")


def card_memory(setup: Setup) -> float:
    """A card's memory in GiB; raises NotApplicable on a CPU, Undecided when it is not known."""
    if on_cpu(setup):
        raise NotApplicable("there is no card: everything lives in the host's memory")
    if setup.known.gpu_memory is None:
        raise Undecided("the memory of a card is not known")
    return setup.known.gpu_memory


def _rollout(setup: Setup, out: Judgement) -> None:
    card = card_memory(setup)
    memory, tokens = rollout_memory(setup, card)
    share = float(setup.get(_UTILIZATION, 0.5))
    weights = memory.terms["weights"] / GIB
    out.show(
        f"weights {weights:.1f} GiB at TP {setup.rollout_tp} <= {share:g} x {card:g} = "
        f"{share * card:.1f} GiB; the rest holds {tokens:,} tokens"
    )
    if tokens >= setup.length:
        return
    smallest = smallest_rollout_tp(setup, card)
    fix = f"{_TP}={smallest}" if smallest else f"cards with more than {card:g} GiB"
    out.error(
        _TP,
        f"weights of {weights:.1f} GiB at TP {setup.rollout_tp} leave room for {tokens:,} tokens "
        f"in {share:g} x {card:g} GiB, less than one longest sequence ({setup.length:,})",
        fix,
    )


def _training(setup: Setup, out: Judgement) -> None:
    card = card_memory(setup)
    memory = training_memory(setup)
    terms = " + ".join(f"{name} {size / GIB:.1f}" for name, size in memory.terms.items() if size)
    out.show(f"{terms} = {memory.total / GIB:.1f} GiB <= {card:g} GiB")
    if memory.total / GIB > card:
        key = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu"
        out.warn(
            key, "recipe-memory-training.update-estimated-gib", total=memory.total / GIB, card=card
        )


RULES = (
    Rule("recipe-memory-rollout", Source("reprise recipe plan: rollout terms"), _rollout),
    Rule("recipe-memory-training", Source("reprise recipe plan: training terms"), _training),
)
