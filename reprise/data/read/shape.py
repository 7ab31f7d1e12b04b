"""The types that a stream of JSON-like values has, with the rows that do not fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from reprise.data.read.rows import as_list

__all__ = ["Clash", "Shape"]

Value: TypeAlias = Any  # whatever JSON, Arrow or pandas may hold

_INT64 = 1 << 63
_EXACT_FLOAT = 1 << 53
_KINDS = (
    (type(None), "null"),
    ((bool, np.bool_), "bool"),
    ((float, np.floating), "float"),
    (Mapping, "struct"),
)
_IMPOSSIBLE = frozenset({"nesting too deep", "int beyond 64 bits", "invalid text"})
_DEPTH = 32  # deeper nesting is refused: parquet readers recurse once or more for each level


@dataclass(frozen=True, slots=True)
class Clash:
    """Values at `path` that no one Arrow type holds: each kind with the row where it first was."""

    path: str
    kinds: Mapping[str, int]

    def text(self) -> str:
        """For example `extra_info.index: int (row 1), string (row 7)`."""
        return f"{self.path}: " + ", ".join(f"{k} (row {r})" for k, r in self.kinds.items())


@dataclass(slots=True)
class Shape:
    """What was seen at one place: kinds with their first row, and what lies below."""

    kinds: dict[str, int] = field(default_factory=dict)
    seen: int = 0
    fields: dict[str, Shape] = field(default_factory=dict)
    element: Shape | None = None
    objects: int = 0
    exact: bool = True

    def observe(self, value: Value, row: int, depth: int = 0) -> None:
        """Take in `value` of row `row`. Never raises."""
        self.seen += 1
        kind = _kind(value)
        if depth > _DEPTH and kind in ("struct", "list"):
            kind = "nesting too deep"
        if kind == "int" and abs(int(value)) > _EXACT_FLOAT:
            self.exact = False
        self.kinds.setdefault(kind, row)
        self.objects += kind == "struct"
        if kind == "struct":
            for key, item in value.items():
                self.fields.setdefault(str(key), Shape()).observe(item, row, depth + 1)
        elif kind == "list":
            self.element = self.element or Shape()
            for item in as_list(value) or ():
                self.element.observe(item, row, depth + 1)

    def clashes(self, path: str) -> Iterator[Clash]:
        """Every place at or below `path` whose values fit no single type."""
        kinds = {kind: row for kind, row in self.kinds.items() if kind != "null"}
        impossible = any(k in _IMPOSSIBLE or k.startswith("object of type") for k in kinds)
        exact_numbers = set(kinds) == {"int", "float"} and self.exact
        if impossible or (len(kinds) > 1 and not exact_numbers):
            yield Clash(path, kinds)
        if set(kinds) == {"struct"} and not self.fields:
            yield Clash(
                path, {"an object without any key, which parquet cannot hold": kinds["struct"]}
            )
        for key, shape in self.fields.items():
            if not _is_unicode(key):
                yield Clash(f"{path}.{key!r}", {"invalid key": min(shape.kinds.values())})
            yield from shape.clashes(f"{path}.{key}")
        if self.element is not None:
            yield from self.element.clashes(f"{path}[]")

    def sparse_fields(self, path: str) -> Iterator[tuple[str, int, int]]:
        """Keys that some objects at or below `path` lack: how many do, and the first row with it.

        An Arrow struct is the union of all keys, so a reader fills those with None.
        """
        for key, shape in self.fields.items():
            if shape.seen < self.objects:
                yield f"{path}.{key}", self.objects - shape.seen, min(shape.kinds.values())
            yield from shape.sparse_fields(f"{path}.{key}")
        if self.element is not None:
            yield from self.element.sparse_fields(f"{path}[]")

    def arrow_type(self) -> pa.DataType:
        """The one type that holds all values seen; a place that was always null is a string."""
        kinds = set(self.kinds) - {"null"}
        if kinds == {"struct"}:
            return pa.struct([(key, shape.arrow_type()) for key, shape in self.fields.items()])
        if kinds == {"list"}:
            return pa.list_(self.element.arrow_type() if self.element else pa.string())
        if kinds == {"int"}:
            return pa.int64()
        if kinds in ({"float"}, {"int", "float"}):
            return pa.float64()
        if kinds == {"bool"}:
            return pa.bool_()
        return pa.string()


def _kind(value: Value) -> str:
    """The name of a value's kind; what Arrow or JSON cannot hold gets a telling name."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return "int" if -_INT64 <= int(value) < _INT64 else "int beyond 64 bits"
    if isinstance(value, str):
        return "string" if _is_unicode(value) else "invalid text"
    if as_list(value) is not None:
        return "list"
    for types, kind in _KINDS:
        if isinstance(value, types):
            return kind
    return f"object of type {type(value).__name__}"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
