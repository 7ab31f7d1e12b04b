"""Whether the weights that the trainer sends reach those of the rollout."""

from __future__ import annotations

from reprise.recipe.rules.base import Judgement, NotApplicable, Rule, Source, Undecided
from reprise.recipe.setup import Setup

__all__ = ["RULES"]

# The variable of a job whose plug-ins cut them apart (docs/plugins.md).
_UNPACKED = ("REPRISE_EXPERTS", "unpack")


def _packed_experts(setup: Setup, out: Judgement) -> None:
    if setup.engine != "sglang" or setup.megatron:
        raise NotApplicable("weights do not go from FSDP to SGLang")
    if setup.model is None or setup.model.experts is None:
        raise Undecided("the model's experts are unknown (--model-config)")
    family = setup.model.family
    if not setup.model.experts or setup.model.known.experts == "own":
        raise NotApplicable("the model has no experts that transformers packs")
    source = setup.tree.source("workers/engine/fsdp/utils.py") if setup.tree else None
    if source is None:
        raise Undecided("verl's workers/engine/fsdp/utils.py is not available")
    out.show(f"verl's FSDP engine cuts the experts of {family} apart: {'def unfuse_moe' in source}")
    if "def unfuse_moe_params" in source:
        return
    name, wanted = _UNPACKED
    if setup.known.environment.get(name) == wanted:
        out.show(f"{name}={wanted}: the plug-ins do")
        return
    key = "actor_rollout_ref.rollout.name"
    if setup.model.known.sglang_drops:
        out.error(key, "recipe-rollout-experts.packed", verl=_release(setup), family=family)
    else:
        out.warn(key, "recipe-rollout-experts.unread", verl=_release(setup), family=family)


def _release(setup: Setup) -> str:
    return setup.tree.label() if setup.tree else "verl"


RULES = (
    Rule(
        "recipe-rollout-experts",
        Source("workers/engine/fsdp/utils.py", "def unfuse_moe_params"),
        _packed_experts,
    ),
)
