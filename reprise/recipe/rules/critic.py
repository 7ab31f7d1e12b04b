"""The critic of PPO: its parallel sizes, its token budget, its place on the card."""

from __future__ import annotations

from reprise.recipe.plan.critic import with_critic_on_card
from reprise.recipe.plan.memory import GIB, training_memory
from reprise.recipe.rules.base import Judgement, NotApplicable, Rule, Source
from reprise.recipe.rules.memory import card_memory
from reprise.recipe.rules.parallel import SIZES
from reprise.recipe.setup import Setup

__all__ = ["RULES"]

_ACTOR = "actor_rollout_ref.actor"
_BUDGET = "critic.ppo_infer_max_token_len_per_gpu"
# The default of verl's CriticConfig (workers/config/critic.py); no YAML file has the key.
_BUDGET_DEFAULT = 32768


def _only_critic(setup: Setup) -> None:
    if not setup.critic:
        raise NotApplicable("no critic is trained")


def _sizes(setup: Setup, out: Judgement) -> None:
    _only_critic(setup)
    if not setup.megatron:
        raise NotApplicable("FSDP shards each model by itself")
    for name in SIZES:
        key = f"critic.megatron.{name}_parallel_size"
        actor = setup.get(f"{_ACTOR}.megatron.{name}_parallel_size")
        critic = setup.get(key)
        if name == "expert_tensor":
            actor = actor or setup.tp
            critic = critic or setup.get("critic.megatron.tensor_model_parallel_size", 1)
        out.show(f"critic {name} {critic} == actor {actor}")
        if actor != critic:
            out.error(
                key, "recipe-critic-sizes.but-actor-both", critic=critic, actor=actor, setting=key
            )


def _tokens(setup: Setup, out: Judgement) -> None:
    _only_critic(setup)
    budget = setup.integer(_BUDGET, _BUDGET_DEFAULT)
    out.show(f"{_BUDGET} {budget} x CP {setup.cp} >= longest sequence {setup.length}")
    if budget * setup.cp < setup.length:
        need = -(-setup.length // setup.cp)
        out.error(
            _BUDGET,
            "recipe-critic-tokens.x-cp-tokens",
            budget=budget,
            cp=setup.cp,
            length=setup.length,
            value="" if setup.has(_BUDGET) else "+",
            need=need,
        )
    stated = setup.get("critic.ppo_max_token_len_per_gpu")
    if setup.get("trainer.use_v1", True) and stated not in (None, budget, _BUDGET_DEFAULT):
        out.warn(
            "critic.ppo_max_token_len_per_gpu",
            "recipe-critic-tokens.accepted-but-ignored",
            stated=stated,
            budget=budget,
            value="" if setup.has(_BUDGET) else "+",
        )


def _memory(setup: Setup, out: Judgement) -> None:
    _only_critic(setup)
    card = card_memory(setup)
    memory = with_critic_on_card(setup, training_memory(setup))
    held = memory.terms["critic (not offloaded)"] / GIB
    out.show(
        f"actor's update {memory.total / GIB - held:.1f} + critic on the card {held:.1f} GiB <= "
        f"{card:g} GiB"
    )
    if held and memory.total / GIB > card:
        node = "megatron" if setup.megatron else "fsdp"
        out.warn(
            f"critic.{node}.param_offload",
            "recipe-critic-memory.critic-s-gib",
            held=held,
            total=memory.total / GIB,
            card=card,
            node=node,
        )


RULES = (
    Rule(
        "recipe-critic-sizes",
        Source("workers/engine/megatron/transformer_impl.py", "if mpu.is_initialized():"),
        _sizes,
    ),
    Rule(
        "recipe-critic-tokens",
        Source(
            "trainer/ppo/v1/trainer_base.py",
            "critic_cfg.engine.max_token_len_per_gpu = critic_cfg.ppo_infer_max_token_len_per_gpu",
        ),
        _tokens,
    ),
    Rule("recipe-critic-memory", Source("reprise recipe plan: training terms"), _memory),
)
