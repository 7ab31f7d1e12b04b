"""Chunks of a JSON lines file: `datasets` fixes the types by the first one and casts the others.

datasets 5.2 (packaged_modules/json/json.py, _generate_tables and _cast_table): a chunk is 10 MiB
and the rest of its last line. In later chunks a further column or key, a type that cannot be cast,
or a value where the first chunk had only null stops the load; missing ones become null.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from reprise.data.read.shape import Shape

__all__ = ["CHUNK_BYTES", "Chunks", "Uncast"]

CHUNK_BYTES = 10 << 20


@dataclass(frozen=True, slots=True)
class Uncast:
    """A place that does not fit the types of the first chunk: why, and its first row.

    `mixed`: the place has values of several types, which no column of parquet can hold either.
    """

    path: str
    reason: str
    row: int
    mixed: bool = False


@dataclass(slots=True)
class Chunks:
    """The shapes of a file's chunks; of later ones only what does not fit the first is kept."""

    first: Shape = field(default_factory=Shape)
    later: Shape | None = None
    number: int = 0
    uncast: list[Uncast] = field(default_factory=list)

    def observe(self, row: Any, number: int, chunk: int) -> None:
        """Take in a row of a chunk (from 0), in order."""
        if chunk == 0:
            self.first.observe(row, number)
            return
        if chunk != self.number:
            self.close()
            self.number, self.later = chunk, Shape()
        assert self.later is not None
        self.later.observe(row, number)

    def close(self) -> None:
        """Judge the chunk that ended."""
        if self.later is not None and not self.uncast:
            self.uncast.extend(_uncast(self.first, self.later, ""))
        self.later = None


def _uncast(first: Shape, later: Shape, path: str) -> Iterator[Uncast]:
    """The places of a later chunk that cannot be cast to the first one's types."""
    have, want = later.main_kinds(), first.main_kinds()
    # The first row that differs, not the first of the chunk.
    other = {kind: row for kind, row in later.kinds.items() if kind not in {*want, "null"}}
    row = min((other or later.kinds).values())
    if len(want) > 1:
        return  # read as JSON, whatever it is
    if have and not want:
        yield Uncast(path, "was null in the first 10 MiB", row)
    elif not have <= want and not _casts(want, later):
        shown = "/".join(sorted(have))
        reason = f"{shown} after {'/'.join(sorted(want))} in the first 10 MiB"
        yield Uncast(path, reason, row, mixed=True)
    elif want == {"struct"}:
        for key, shape in later.fields.items():
            inner = f"{path}.{key}" if path else key
            if key not in first.fields:
                where = "column" if not path else "key"
                yield Uncast(
                    inner, f"a {where} that the first 10 MiB lack", min(shape.kinds.values())
                )
            else:
                yield from _uncast(first.fields[key], shape, inner)
    elif want == {"list"} and later.element is not None:
        yield from _uncast(first.element or Shape(), later.element, f"{path}[]")


def _casts(want: set[str], later: Shape) -> bool:
    have = later.main_kinds()
    if want == {"string"}:
        return not have & {"struct", "list"} and len(have) == 1
    if want == {"int"}:
        return have <= {"int", "float"} and not later.fraction
    return want == {"float"} and have <= {"int", "float"}
