"""Which file and line gave a key its value: an override line, a recipe's YAML, verl's default."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import yaml

from reprise.recipe.config.compose import Composition

__all__ = ["VERLS_OWN", "Origins"]

VERLS_OWN = "verl's default"


class Origins:
    """Looks up where a key of a composition was written."""

    def __init__(self, composition: Composition, recipes: Path | None) -> None:
        self.composition = composition
        self.recipes = recipes

    def where(self, key: str) -> str:
        """`run.sh:57 (key)`, `recipes/hy3/recipe.yaml:12 (key)` or `verl's default (key)`."""
        line = self.composition.line_of(key)
        if line is not None:
            return f"{line.where} ({key})"
        parts = key.split(".")
        for depth in range(len(parts), 0, -1):
            found = self._lines.get(".".join(parts[:depth]))
            if found is not None:
                return f"{found} ({key})"
        return f"{VERLS_OWN} ({key})"

    @cached_property
    def _lines(self) -> dict[str, str]:
        """Dotted key to file:line over the recipe's own YAML files, the last writer winning."""
        found: dict[str, str] = {}
        for name, package in self.composition.files:
            if self.recipes is None:
                continue
            folders = (*self.composition.folders, self.recipes)
            path = next((one / f"{name}.yaml" for one in folders if _has(one, name)), None)
            if path is not None:
                inside = path.is_relative_to(self.recipes)
                shown = os.path.relpath(path, self.recipes.parent) if inside else str(path)
                found |= {key: f"{shown}:{number}" for key, number in _keys(path, package)}
        return found


def _has(folder: Path, name: str) -> bool:
    return (folder / f"{name}.yaml").is_file()


def _keys(path: Path, package: str) -> Iterator[tuple[str, int]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    root = yaml.compose(path.read_text(encoding="utf-8"), Loader=loader)
    prefix = f"{package}." if package else ""
    if isinstance(root, yaml.MappingNode):
        yield from _walk(root, prefix)


def _walk(node: yaml.MappingNode, prefix: str) -> Iterator[tuple[str, int]]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        if isinstance(value, yaml.MappingNode):
            yield from _walk(value, f"{path}.")
        else:
            yield path, key.start_mark.line + 1
