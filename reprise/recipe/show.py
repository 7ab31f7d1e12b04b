"""Show a recipe: the resolved config, the differences from verl's defaults, the command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from reprise.recipe.config.origin import Origins
from reprise.recipe.config.overrides import Line
from reprise.recipe.folders import OUTSIDE
from reprise.recipe.load import Loaded
from reprise.recipe.rules.places import is_secret, masked

__all__ = ["command_line", "config_path", "differences", "resolved_yaml", "without_secrets"]

# What every recipe names as its search path.
VERLS_CONFIG = "pkg://verl.trainer.config"


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


def command_line(name: str, lines: Sequence[Line], outside: Path | None = None) -> str:
    """The job's command, as Ray's shell runs it in the unpacked package.

    `outside` is the folder of recipes that has the recipe, None for the project's own.
    """
    texts = []
    for line in lines:
        key, _, value = line.text.partition("=")
        texts.append(f"{key}={masked(value)}" if is_secret(key, value) else line.text)
    arguments = [
        "python3",
        "-m",
        "verl.trainer.main_ppo",
        "--config-name",
        f"{name}/recipe",
        *texts,
    ]
    return f"{shlex.join(arguments)} {config_path(outside is not None)}"


def config_path(outside: bool) -> str:
    """Where Hydra finds the recipe in the unpacked package, as words for a shell.

    A recipe from outside the project is in a folder of its own (folders.OUTSIDE), and finds the
    project's groups beside it.
    """
    if not outside:
        return '--config-path "$PWD/recipes"'
    search = f'"hydra.searchpath=[{VERLS_CONFIG},file://$PWD/recipes]"'
    return f'--config-path "$PWD/{OUTSIDE}" {search}'
