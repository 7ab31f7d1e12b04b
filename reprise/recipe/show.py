"""Show a recipe: the resolved config, what differs from verl's defaults, and the command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from reprise.recipe.config.origin import Origins
from reprise.recipe.config.overrides import Line
from reprise.recipe.load import Loaded
from reprise.recipe.rules.places import is_secret, masked

__all__ = ["command_line", "differences", "resolved_yaml", "without_secrets"]


def without_secrets(node: Any, path: str = "") -> Any:
    """The values with credentials masked, for everything that is printed."""
    if isinstance(node, Mapping):
        return {
            key: without_secrets(value, f"{path}.{key}" if path else str(key))
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [without_secrets(value, path) for value in node]
    return masked(node) if is_secret(path, node) else node


def resolved_yaml(loaded: Loaded) -> str:
    """The resolved config as YAML."""
    return OmegaConf.to_yaml(OmegaConf.create(without_secrets(loaded.composition.values)))


def differences(loaded: Loaded, origins: Origins) -> list[dict[str, Any]]:
    """Settings that differ from verl's defaults for the same engine, in the config's order.

    Each is `{"key", "value", "default", "where"}`; `default` is None for keys that verl lacks.
    """
    values = without_secrets(loaded.composition.values)
    return [
        {"key": key, "value": value, "default": default, "where": origins.where(key)}
        for key, value, default in _walk(values, loaded.composition.base, "")
    ]


def _walk(values: Any, base: Any, prefix: str) -> list[tuple[str, Any, Any]]:
    found: list[tuple[str, Any, Any]] = []
    for key, value in values.items():
        path = f"{prefix}{key}"
        default = base.get(key) if isinstance(base, Mapping) else None
        if isinstance(value, Mapping):
            inner = default if isinstance(default, Mapping) else {}
            found += _walk(value, inner, f"{path}.")
        elif value != default:
            found.append((path, value, default))
    return found


def command_line(name: str, lines: Sequence[Line]) -> str:
    """The job's command, as Ray's shell runs it in the unpacked package."""
    texts = []
    for line in lines:
        key, _, value = line.text.partition("=")
        texts.append(f"{key}={masked(value)}" if is_secret(key, value) else line.text)
    words = ["python3", "-m", "verl.trainer.main_ppo", "--config-name", f"{name}/recipe", *texts]
    return f'{shlex.join(words)} --config-path "$PWD/recipes"'
