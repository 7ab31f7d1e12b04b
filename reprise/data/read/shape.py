"""The types of a stream of JSON-like values, with the rows whose types differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from reprise.data.read.rows import as_list

__all__ = ["Clash", "Shape", "is_date"]

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
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DEPTH = 32  # deeper nesting is refused: parquet readers recurse once or more for each level


@dataclass(frozen=True, slots=True)
class Clash:
    """Values at `path` that do not fit one Arrow type: each kind with its first row."""

    path: str
    kinds: Mapping[str, int]

    @property
    def impossible(self) -> bool:
        """Does it hold a value that no reader takes, beyond the mixture?"""
        return any(k in _IMPOSSIBLE or k.startswith(("object ", "an object")) for k in self.kinds)

    def text(self) -> str:
        """For example `extra_info.index: int (row 1), string (row 7)`."""
        return f"{self.path}: " + ", ".join(f"{k} (row {r})" for k, r in self.kinds.items())


@dataclass(slots=True)
class Shape:
    """The values found at one path: kinds with their first row, and the paths below it."""

    kinds: dict[str, int] = field(default_factory=dict)
    seen: int = 0
    fields: dict[str, Shape] = field(default_factory=dict)
    element: Shape | None = None
    objects: int = 0
    exact: bool = True
    fraction: bool = False
    dates: bool = True

    def observe(self, value: Value, row: int, depth: int = 0) -> None:
        """Take in `value` of row `row`. Never raises."""
        self.seen += 1
        kind = _kind(value)
        if depth > _DEPTH and kind in ("struct", "list"):
            kind = "nesting too deep"
        if kind == "int" and abs(int(value)) > _EXACT_FLOAT:
            self.exact = False
        if kind == "float" and not float(value).is_integer():
            self.fraction = True
        if kind == "string" and self.dates:
            self.dates = is_date(value)
        self.kinds.setdefault(kind, row)
        self.objects += kind == "struct"
        if kind == "struct":
            for key, item in value.items():
                self.fields.setdefault(str(key), Shape()).observe(item, row, depth + 1)
        elif kind == "list":
            self.element = self.element or Shape()
            for item in as_list(value) or ():
                self.element.observe(item, row, depth + 1)

    def main_kinds(self) -> set[str]:
        """The kinds without null; integers with fractions are floats, as Arrow reads them."""
        found = set(self.kinds) - {"null"}
        return {"float"} if found == {"int", "float"} and self.exact else found

    def date_paths(self, path: str) -> Iterator[tuple[str, int]]:
        """The paths whose texts are all dates, with their first row: Arrow reads them as such."""
        if self.dates and set(self.kinds) - {"null"} == {"string"}:
            yield path, self.kinds["string"]
        for key, shape in self.fields.items():
            yield from shape.date_paths(f"{path}.{key}")
        if self.element is not None:
            yield from self.element.date_paths(f"{path}[]")

    def clashes(self, path: str, parquet: bool = True) -> Iterator[Clash]:
        """Every path at or below `path` whose values do not fit one type.

        Parquet cannot store an object without keys either.
        """
        kinds = {kind: row for kind, row in self.kinds.items() if kind != "null"}
        impossible = any(k in _IMPOSSIBLE or k.startswith("object of type") for k in kinds)
        exact_numbers = set(kinds) == {"int", "float"} and self.exact
        if impossible or (len(kinds) > 1 and not exact_numbers):
            yield Clash(path, kinds)
        if parquet and set(kinds) == {"struct"} and not self.fields:
            yield Clash(
                path, {"an object without keys, which parquet cannot store": kinds["struct"]}
            )
        for key, shape in self.fields.items():
            if not _is_unicode(key):
                yield Clash(f"{path}.{key!r}", {"invalid key": min(shape.kinds.values())})
            yield from shape.clashes(f"{path}.{key}", parquet)
        if self.element is not None:
            yield from self.element.clashes(f"{path}[]", parquet)

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

    def arrow_type(self, empty: pa.DataType | None = None) -> pa.DataType:
        """The one type that holds all values seen.

        A place that was always null is `empty`, by default a string.
        """
        kinds = set(self.kinds) - {"null"}
        none = pa.string() if empty is None else empty
        if kinds == {"struct"}:
            inner = [(key, shape.arrow_type(empty)) for key, shape in self.fields.items()]
            return pa.struct(inner)
        if kinds == {"list"}:
            return pa.list_(self.element.arrow_type(empty) if self.element else none)
        if kinds in ({"float"}, {"int", "float"}):
            return pa.float64()
        if kinds in ({"int"}, {"bool"}):
            return pa.int64() if kinds == {"int"} else pa.bool_()
        return pa.string() if kinds else none


def is_date(text: str) -> bool:
    """Does Arrow's reader of JSON take this text for a date or a time?"""
    if _DATE.match(text) is None:
        return False
    try:
        pa.array([text]).cast(pa.timestamp("s"))
    except pa.ArrowInvalid:
        return False
    return True


def _kind(value: Value) -> str:
    """The kind of a value; values that Arrow or JSON cannot store have kinds of their own."""
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
