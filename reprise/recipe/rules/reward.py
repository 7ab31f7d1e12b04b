"""Reward settings: keys that verl reads, the manager in effect, the overlong buffer."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reprise.recipe.rules.base import Judgement, NotApplicable, Rule, Source, choice_of
from reprise.recipe.setup import Setup

__all__ = ["RULES", "replacement"]

_MANAGER = "reward.reward_manager.name"
_KWARGS = "reward.reward_kwargs"
# Old key (a prefix) to the key that is read, after migrate_legacy_reward_impl in
# verl/experimental/reward_loop/reward_loop.py.
_MOVED = (
    ("reward_model.reward_manager", "reward.reward_manager.name"),
    ("reward_model.reward_kwargs", "reward.reward_kwargs"),
    ("reward_model.num_workers", "reward.num_workers"),
    ("reward_model.reward_loop_source", "reward.reward_manager.source"),
    ("reward_model.reward_loop_module_path", "reward.reward_manager.module.path"),
    ("reward_model.reward_loop_class_name", "reward.reward_manager.module.name"),
    ("reward_model.enable_resource_pool", "reward.reward_model.enable_resource_pool"),
    ("reward_model.enable", "reward.reward_model.enable"),
    ("reward_model.n_gpus_per_node", "reward.reward_model.n_gpus_per_node"),
    ("reward_model.nnodes", "reward.reward_model.nnodes"),
    ("reward_model.model.path", "reward.reward_model.model_path"),
    ("reward_model.rollout", "reward.reward_model.rollout"),
    ("custom_reward_function", "reward.custom_reward_function"),
    ("sandbox_fusion", "reward.sandbox_fusion"),
)


def replacement(key: str) -> str:
    """The key that is read in place of a legacy reward key; empty when there is none."""
    for old, new in _MOVED:
        if key == old or key.startswith(old + "."):
            return new + key.removeprefix(old)
    return ""


def _leaves(node: object, prefix: str) -> list[tuple[str, object]]:
    if isinstance(node, Mapping):
        found = []
        for key, value in node.items():
            found += _leaves(value, f"{prefix}.{key}")
        return found
    return [] if node is None else [(prefix, node)]


def _legacy(setup: Setup, out: Judgement) -> None:
    entry = setup.tree.source("trainer/main_ppo.py") if setup.tree else None
    if entry is not None and "migrate_legacy_reward_impl(" in entry:
        raise NotApplicable("main_ppo of this verl translates the legacy keys")
    groups = ("reward_model", "custom_reward_function", "sandbox_fusion")
    found = [pair for group in groups for pair in _leaves(setup.get(group), group)]
    out.show(f"{len(found)} legacy reward keys set; main_ppo reads reward.* only")
    manager = setup.get(_MANAGER)
    for key, value in found:
        new = replacement(key)
        effective = setup.get(new) if new and setup.has(new) else None
        if not new:
            out.error(key, "recipe-reward-legacy-keys.ignored", manager=manager)
        elif effective not in (None, value):
            out.error(
                key,
                "recipe-reward-legacy-keys.contradicts",
                new=new,
                effective=effective,
                value=value,
                setting=key,
            )
        else:
            out.error(
                key,
                "recipe-reward-legacy-keys.moved",
                manager=manager,
                plus="" if setup.has(new) else "+",
                new=new,
                value=value,
                setting=key,
            )


def _manager(setup: Setup, out: Judgement) -> None:
    name = str(setup.get(_MANAGER, "naive"))
    out.show(f"effective reward manager: {name}")
    if setup.get("reward.reward_manager.source", "register") != "register":
        return
    known = _registered(setup)
    if known and name not in known:
        out.error(
            _MANAGER,
            "recipe-reward-manager.unknown",
            name=name,
            known=", ".join(known),
            fix=choice_of(_MANAGER, name, known),
        )


def _registered(setup: Setup) -> list[str]:
    """Names of the reward managers that this verl registers."""
    if setup.tree is None:
        return []
    folder = setup.tree.package / "experimental" / "reward_loop" / "reward_manager"
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))]
    return [name for text in texts for name in re.findall(r"^@register\(\"(\w+)\"\)", text, re.M)]


def _overlong(setup: Setup, out: Judgement) -> None:
    buffer = setup.get(f"{_KWARGS}.overlong_buffer_cfg")
    if not isinstance(buffer, Mapping) or not buffer.get("enable"):
        raise NotApplicable("the overlong buffer is off")
    name = setup.get(_MANAGER, "naive")
    size, longest = buffer.get("len"), setup.get(f"{_KWARGS}.max_resp_len")
    shown = f"0 < len {size} <= max_resp_len {longest} == max_response_length {setup.response}"
    out.show(f"{shown}; manager {name}")
    if name != "dapo":
        out.error(_MANAGER, "recipe-reward-overlong.ignored", name=name)
    if not isinstance(longest, int):
        out.error(
            f"{_KWARGS}.max_resp_len", "recipe-reward-overlong.no-limit", response=setup.response
        )
    elif longest != setup.response:
        out.error(
            f"{_KWARGS}.max_resp_len",
            "recipe-reward-overlong.differs",
            longest=longest,
            response=setup.response,
        )
    if not isinstance(size, int) or size <= 0 or (isinstance(longest, int) and size > longest):
        out.error(
            f"{_KWARGS}.overlong_buffer_cfg.len",
            "recipe-reward-overlong.length",
            size=size,
            longest=longest,
            suggested=max(1, setup.response // 2),
        )


RULES = (
    Rule(
        "recipe-reward-legacy-keys",
        Source(
            "experimental/reward_loop/reward_loop.py", "def migrate_legacy_reward_impl(config):"
        ),
        _legacy,
    ),
    Rule(
        "recipe-reward-manager",
        Source("workers/config/reward.py", "assert self.name in REWARD_MANAGER"),
        _manager,
    ),
    Rule(
        "recipe-reward-overlong",
        Source(
            "experimental/reward_loop/reward_manager/dapo.py",
            "assert self.max_resp_len >= self.overlong_buffer_cfg.len",
        ),
        _overlong,
    ),
)
