"""Existing keys with the meaning that a wrong key was to have; none where that is not sure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from reprise.core.nearby import is_slip

__all__ = ["Keys"]

# Whose settings a key has; the same name in another role is another setting.
_ROLES = frozenset(
    ("actor", "ref", "rollout", "critic", "reward", "reward_model", "distillation", "model")
)
_FEWEST_PARTS = 3


class Keys:
    """The keys of a config, to find the one that a wrong key was to be."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    @cached_property
    def _known(self) -> list[tuple[str, ...]]:
        return [tuple(path) for path in _paths(self._config, ())]

    def meant(self, key: str) -> list[str]:
        """At most one existing key: a slip of `key`, or the same name in another place.

        A place counts only where no other role has that name: a critic's setting is never
        answered with the actor's. A part that the name lacks (`ppo_max_token_len` for
        `ppo_max_token_len_per_gpu`) counts where only one neighbour has all other parts.
        """
        parts = tuple(key.split("."))
        for found in (self._slips(parts), self._longer(parts), self._moved(parts)):
            if found:
                return [".".join(found[0])] if len(found) == 1 else []
        return []

    def _slips(self, parts: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Keys in which one name differs, by a typing error."""
        found = []
        for path in self._known:
            if len(path) != len(parts) or path == parts:
                continue
            wrong = [pair for pair in zip(parts, path, strict=True) if pair[0] != pair[1]]
            if len(wrong) == 1 and is_slip(*wrong[0]):
                found.append(path)
        return found

    def _longer(self, parts: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Neighbours whose names have every part of the wrong name in its order, and more."""
        words = parts[-1].split("_")
        if len(words) < _FEWEST_PARTS:
            return []
        return [
            path
            for path in self._known
            if path[:-1] == parts[:-1] and path != parts and _within(words, path[-1].split("_"))
        ]

    def _moved(self, parts: tuple[str, ...]) -> list[tuple[str, ...]]:
        """The same name elsewhere, where it is one of a kind and not another role's."""
        if "_" not in parts[-1]:
            return []
        same = [path for path in self._known if path[-1] == parts[-1] and path != parts]
        role = _role(parts)
        if role:
            same = [path for path in same if _role(path) == role]
        return same


def _role(parts: tuple[str, ...]) -> str:
    place = parts[1:2] if parts[0] == "actor_rollout_ref" else parts[:1]
    return next((name for name in place if name in _ROLES), "")


def _within(words: Iterable[str], others: Iterable[str]) -> bool:
    """Whether all `words` come in this order among `others`."""
    rest = iter(others)
    return all(word in rest for word in words)


def _paths(node: Mapping[str, Any], before: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    for name, value in node.items():
        path = (*before, str(name))
        yield path
        if isinstance(value, Mapping):
            yield from _paths(value, path)
