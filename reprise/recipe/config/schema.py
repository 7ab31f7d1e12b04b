"""Keys of a config that verl's own config lacks: valid additions, or typing errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.names import class_fields

__all__ = ["Schema", "schema_of", "unknown_keys"]


@lru_cache(maxsize=4)
def schema_of(tree: VerlTree) -> Schema:
    """The schema of a tree, read once."""
    return Schema(tree)


class Schema:
    """The dataclasses and the sources of one verl tree, for the check of config keys."""

    def __init__(self, tree: VerlTree) -> None:
        self.tree = tree
        self._fields: dict[str, dict[str, str]] = {}
        self._mentioned: dict[str, bool] = {}

    def fields(self, target: str) -> dict[str, str]:
        """Fields of the dataclass that a node's `_target_` names; empty when it is not found."""
        if target not in self._fields:
            module, _, name = target.rpartition(".")
            folder = self.tree.package.joinpath(*module.split(".")[1:])
            files = sorted(folder.glob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
            files += [self.tree.package / "base_config.py", *self._shared]
            texts = [path.read_text(encoding="utf-8") for path in files if path.is_file()]
            self._fields[target] = class_fields(texts, name) or {}
        return self._fields[target]

    @cached_property
    def _shared(self) -> list[Any]:
        return sorted((self.tree.package / "trainer" / "config").glob("*.py"))

    @cached_property
    def _all_sources(self) -> str:
        return "\n".join(
            path.read_text(encoding="utf-8", errors="replace")
            for path in sorted(self.tree.package.rglob("*.py"))
        )

    def mentions(self, name: str) -> bool:
        """Whether any of verl's sources reads an attribute or a key of this name."""
        if name not in self._mentioned:
            pattern = rf"(\.{re.escape(name)}\b|[\"']{re.escape(name)}[\"'])"
            self._mentioned[name] = re.search(pattern, self._all_sources) is not None
        return self._mentioned[name]


def unknown_keys(
    values: Mapping[str, Any], base: Mapping[str, Any], schema: Schema
) -> Iterator[str]:
    """Dotted keys of `values` that neither verl's config nor its code has.

    A key is known when verl's config has it; when the dataclass of its node has such a field;
    below a node that verl passes on unchanged (an empty mapping, or a field annotated dict);
    and, where no dataclass decides, when any source of verl reads that name.
    """
    for path, parents in _extra(values, base, "", ()):
        if not _known(path, parents, schema):
            yield path


def _extra(
    node: Mapping[str, Any],
    base: Mapping[str, Any],
    prefix: str,
    parents: tuple[tuple[str, Mapping[str, Any]], ...],
) -> Iterator[tuple[str, tuple[tuple[str, Mapping[str, Any]], ...]]]:
    """Keys that the base lacks, each with its parents in the base: (key below, node)."""
    for key, value in node.items():
        chain = (*parents, (key, base))
        if key not in base:
            yield f"{prefix}{key}", chain
        elif isinstance(value, Mapping) and isinstance(base[key], Mapping) and base[key]:
            yield from _extra(value, base[key], f"{prefix}{key}.", chain)


def _known(path: str, parents: tuple[tuple[str, Mapping[str, Any]], ...], schema: Schema) -> bool:
    for key, node in parents[:-1]:
        target = node.get("_target_")
        if target and "dict" in schema.fields(str(target)).get(key, "").lower():
            return True
    key, node = parents[-1]
    target = node.get("_target_")
    fields = schema.fields(str(target)) if target else {}
    # Some nodes have a dataclass and are read as plain config as well.
    plain = not fields or path.rpartition(".")[0] in ("reward", "algorithm")
    return key in fields or (plain and schema.mentions(key))
