"""A composed config with single settings changed: what a suggested fix would make of it."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from reprise.recipe.config.compose import Composition
from reprise.recipe.config.overrides import Fault, Line, parse

__all__ = ["Changes"]

_ROUNDS = 5  # interpolations of interpolations; verl's configs have two


class Changes:
    """Values of `composition` with other settings; what the settings decide follows them."""

    def __init__(self, composition: Composition) -> None:
        self._values = composition.values
        self._config = pickle.dumps(composition.config)
        plain = OmegaConf.to_container(composition.config, resolve=False)
        self._references = list(_references(plain, ()))

    def values(self, settings: Mapping[str, str]) -> dict[str, Any] | None:
        """The values with `settings` (key to text, as on a command line); None if Hydra refuses."""
        config: DictConfig = pickle.loads(self._config)  # noqa: S301 - our own bytes
        made = dict(self._values)
        try:
            for key, text in settings.items():
                override = parse(Line(f"++{key}={text}"))
                if isinstance(override, Fault):
                    return None
                ConfigLoaderImpl._apply_overrides_to_config([override], config)
                _put(made, tuple(key.split(".")), _value(config, key))
            self._follow(made, config, set(settings))
        except (HydraException, OmegaConfBaseException, ValueError):
            return None
        return made

    def _follow(self, made: dict[str, Any], config: DictConfig, changed: set[str]) -> None:
        """Resolve anew what refers to the changed keys."""
        for _ in range(_ROUNDS):
            names = {key.rpartition(".")[2] for key in changed}
            changed = set()
            for path, text in self._references:
                if any(re.search(rf"\b{re.escape(name)}\b", text) for name in names):
                    key = ".".join(path)
                    value = _value(config, key)
                    if value != _found(made, path):
                        _put(made, path, value)
                        changed.add(key)
            if not changed:
                return


def _references(node: Any, before: tuple[str, ...]) -> Any:
    """(path, text) of every value that is an interpolation, outside lists."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield from _references(value, (*before, str(name)))
    elif isinstance(node, str) and "${" in node and "oc.env" not in node:
        yield before, node


def _value(config: DictConfig, key: str) -> Any:
    found = OmegaConf.select(config, key)
    return OmegaConf.to_container(found, resolve=True) if OmegaConf.is_config(found) else found


def _found(node: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _put(made: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set a value; the mappings on the way are copied, not changed."""
    node = made
    for part in path[:-1]:
        below = node.get(part)
        node[part] = dict(below) if isinstance(below, Mapping) else {}
        node = node[part]
    node[path[-1]] = value
