"""What Hydra's refusal of an override leaves open: no rule judges the value in its place."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from reprise.recipe.config.overrides import Fault
from reprise.recipe.unknowns import NotKnown

__all__ = ["left_open"]

_GROUP = "recipe-override-group"
_ENGINE_GROUP = "model_engine"
_UNKNOWN_KEY = "recipe-override-unknown-key"
# Where the choice of an engine shows in the config.
_STRATEGIES = ("actor_rollout_ref.actor.strategy", "actor_rollout_ref.ref.strategy",
               "critic.strategy")  # fmt: skip


def left_open(
    values: dict[str, Any], faults: Sequence[Fault], engines: Collection[str]
) -> NotKnown | None:
    """Put NotKnown into `values` for each setting that a refused override was to set.

    A setting of an engine (one of `engines`) that the config does not have leaves the engine open.
    Returns what leaves the whole config open, a refused choice of a group, else None.
    """
    everything = None
    for fault in faults:
        if not fault.fatal:
            continue
        line = fault.line
        unknown = NotKnown(f"`{line.shown}`, which Hydra refuses", line.where, fix=fault.fix)
        key = line.text.lstrip("+~").partition("=")[0].partition("@")[0]
        if fault.rule == _GROUP and key != _ENGINE_GROUP:
            everything = everything or unknown
            continue
        engine = fault.rule in (_GROUP, _UNKNOWN_KEY) and _names_engine(values, key, engines)
        for one in _STRATEGIES if engine else (key, *fault.meant):
            _put(values, one.split("."), unknown)
    return everything


def _names_engine(values: dict[str, Any], key: str, engines: Collection[str]) -> bool:
    """Whether the first part of `key` that the config lacks is the node of an engine."""
    if key == _ENGINE_GROUP:
        return True
    node: Any = values
    for part in key.split("."):
        if not isinstance(node, dict):
            return False
        if part not in node:
            return part in engines or part == _ENGINE_GROUP
        node = node[part]
    return False


def _put(values: dict[str, Any], parts: Sequence[str], unknown: NotKnown) -> None:
    """Replace a value that is there; a key that nothing reads stays out."""
    node: Any = values
    for part in parts[:-1]:
        node = node.get(part) if isinstance(node, dict) else None
    if isinstance(node, dict) and parts[-1] in node:
        node[parts[-1]] = unknown
