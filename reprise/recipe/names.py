"""The settings of an engine: field names read from its source, never imported."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from reprise.core.errors import OperatorError

__all__ = ["Names", "class_fields", "known_names", "names_of_sources"]


@dataclass(frozen=True, slots=True)
class Names:
    """The settings of one engine. `of` is the version, `source` the files."""

    of: str
    source: str
    names: frozenset[str]


def class_fields(sources: Iterable[str], wanted: str) -> dict[str, str] | None:
    """Annotated fields and properties of class `wanted` with those of its bases in `sources`.

    The values are the annotations as written. None when no source defines the class.
    """
    classes: dict[str, ast.ClassDef] = {}
    for source in sources:
        for name, node in _classes(source).items():
            classes.setdefault(name, node)

    def fields(name: str, seen: frozenset[str]) -> dict[str, str]:
        node = classes.get(name)
        if node is None or name in seen:
            return {}
        found: dict[str, str] = {}
        for base in node.bases:
            inner = base.value if isinstance(base, ast.Subscript) else base
            last = inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")
            found |= fields(str(last).removeprefix("MCore"), seen | {name})
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                found[item.target.id] = ast.unparse(item.annotation)
            elif isinstance(item, ast.FunctionDef) and _is_property(item):
                found[item.name] = "property"
        return found

    return fields(wanted, frozenset()) if wanted in classes else None


@lru_cache(maxsize=256)
def _classes(source: str) -> dict[str, ast.ClassDef]:
    """The classes of a module, the first of each name; a file is asked for several of them."""
    found: dict[str, ast.ClassDef] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            found.setdefault(node.name, node)
    return found


def _is_property(item: ast.FunctionDef) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "property" for mark in item.decorator_list)


def names_of_sources(
    of: str, files: Mapping[str, Path], wanted: Iterable[str]
) -> dict[str, object]:
    """The content of one file of recipes/common/names: the fields of the `wanted` classes.

    `files` maps the cited name of each source to its path.
    """
    texts = [path.read_text(encoding="utf-8") for path in files.values()]
    names: set[str] = set()
    for name in wanted:
        names |= set(class_fields(texts, name) or {})
    public = sorted(name for name in names if not name.startswith("_"))
    return {"of": of, "source": ", ".join(files), "names": public}


def known_names(recipes: Path) -> dict[str, Names]:
    """Engine (`vllm`, `sglang`, `provider`) to its settings, from recipes/common/names.

    Raises OperatorError when a file is damaged.
    """
    found = {}
    for path in sorted((recipes / "common" / "names").glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            names = Names(data["of"], data["source"], frozenset(data["names"]))
        except (ValueError, KeyError, TypeError) as error:
            raise OperatorError(
                "recipe-names.damaged", str(path), reason=error, file=path
            ) from error
        found[path.name.split("-")[0].removesuffix(".json")] = names
    return found
