"""Rows of a parquet or JSON lines file as a stream of batches, in constant memory."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from reprise.core.errors import OperatorError
from reprise.data.read.batches import BATCH_ROWS, Batch, from_arrow, from_dicts
from reprise.data.read.chunks import CHUNK_BYTES
from reprise.data.read.parquet import FIELDS, footer_metadata, open_parquet, require_file

__all__ = ["BadLine", "Source", "json_rows", "open_source"]


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line of a JSON lines file that is not a JSON object."""

    number: int
    reason: str


@dataclass(slots=True)
class Source:
    """One data file. `rows` is its number of rows when the file says so, else None.

    `schema` is that of a parquet file; `metadata` what its writers left in the footer.
    """

    path: Path
    parquet: bool
    schema: pa.Schema | None = None
    rows: int | None = None
    metadata: dict[str, bytes] | None = None

    def columns(self) -> list[str]:
        """The names of the columns (parquet only; empty for JSON lines)."""
        return list(self.schema.names) if self.schema is not None else []

    def batches(
        self, prompt_key: str = "prompt", fields: tuple[str, ...] = FIELDS
    ) -> Iterator[tuple[Batch, pa.RecordBatch | None, list[BadLine]]]:
        """Batches with the Arrow columns they came from (None for JSON) and the bad lines.

        Raises OperatorError when the file turns out to be damaged in the middle.
        """
        if self.parquet:
            yield from self._arrow_batches(prompt_key, fields)
            return
        for chunk, dicts, numbers, bad in _json_batches(self.path):
            yield from_dicts(dicts, np.asarray(numbers, np.int64), prompt_key, chunk), None, bad

    def _arrow_batches(
        self, prompt_key: str, fields: tuple[str, ...]
    ) -> Iterator[tuple[Batch, pa.RecordBatch | None, list[BadLine]]]:
        wanted = [name for name in dict.fromkeys((*fields, prompt_key)) if name in self.columns()]
        first = 1
        for table in _guarded(open_parquet(self.path), wanted, self.path):
            yield from_arrow(table, first, prompt_key), table, []
            first += table.num_rows


def _guarded(file: pq.ParquetFile, columns: list[str], path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of a file, each read while the previous one is processed.

    Damage becomes an OperatorError that names the file.
    """
    batches = file.iter_batches(batch_size=BATCH_ROWS, columns=columns, use_threads=False)
    try:
        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(next, batches, None)
            while (batch := ahead.result()) is not None:
                ahead = pool.submit(next, batches, None)
                yield batch
    except (OSError, pa.ArrowException) as error:
        raise OperatorError(
            "data-file.damaged", str(path), reason=str(error).splitlines()[0]
        ) from None


def open_source(path: Path) -> Source:
    """Open a data file by its name's ending (.parquet, .jsonl, .json, as verl does).

    Raises OperatorError when it is missing, unreadable or of another kind.
    """
    if path.suffix == ".parquet":
        file = open_parquet(path)
        twice = next(repeated_names(file.schema_arrow), None)
        if twice is not None:
            raise OperatorError("data-file.duplicate-column", str(path), column=twice)
        return Source(
            path, True, file.schema_arrow, file.metadata.num_rows, dict(footer_metadata(file))
        )
    require_file(path)
    if path.suffix not in (".jsonl", ".json"):
        raise OperatorError(
            "data-file.wrong-format",
            str(path),
            suffix=path.suffix or "a bare name",
            path=path,
            target=path.with_suffix(".parquet"),
        )
    return Source(path, False)


def repeated_names(schema: Iterable[Any], path: str = "") -> Iterator[str]:
    """Columns, and fields of nested types, that share a name with another one."""
    seen: set[str] = set()
    for item in schema:
        name = f"{path}.{item.name}" if path else item.name
        if item.name in seen:
            yield name
        seen.add(item.name)
        kind = item.type
        while pa.types.is_list(kind) or pa.types.is_large_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            yield from repeated_names(kind, name)


def json_rows(path: Path, exact: bool = False) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """Numbered rows of a JSON lines file, or of one JSON array (which is read whole).

    The number is the line's, or the place in the array. With `exact` a row with a number of more
    digits than a float holds is a bad line. Raises OSError as the file system does.
    """
    for _, number, row in _chunked_rows(path, exact):
        yield number, row


def _chunked_rows(path: Path, exact: bool) -> Iterator[tuple[int, int, dict[str, Any] | BadLine]]:
    """As `json_rows`, with the number of the chunk (chunks.py) first; an array is one chunk."""
    with path.open("rb") as file:
        begin = len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0
        file.seek(begin)
        start = file.read(64).lstrip()
        file.seek(begin)
        if start.startswith(b"["):
            yield from ((0, *item) for item in _array_rows(file.read(), exact))
            return
        chunk, chunk_start, place = 0, 0, begin
        for number, line in enumerate(file, 1):
            if place > chunk_start + CHUNK_BYTES:
                chunk, chunk_start = chunk + 1, place
            place += len(line)
            if line.strip():
                yield chunk, number, _parse(line, number, exact)


def _array_rows(text: bytes, exact: bool) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    try:
        items = _value(text, exact)
    except ValueError as error:
        yield 1, BadLine(1, str(error))
        return
    for number, item in enumerate(items, 1):
        yield number, item if isinstance(item, dict) else BadLine(number, "not an object")


def _parse(line: bytes, number: int, exact: bool) -> dict[str, Any] | BadLine:
    try:
        value = _value(line, exact)
    except ValueError as error:
        return BadLine(number, str(error))
    return value if isinstance(value, dict) else BadLine(number, "not an object")


# orjson makes a float of an integer beyond 64 bits; such lines are read by Python's own parser.
_LONG = re.compile(rb"[0-9]{17}")


def _value(text: bytes, exact: bool) -> Any:
    """The value of a JSON text, its integers exact. Raises ValueError with the reason.

    NaN and Infinity are taken, as Arrow's reader does.
    """
    parse_float = _exact_float if exact else float
    try:
        if _LONG.search(text):
            return json.loads(text, parse_float=parse_float)
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if b"NaN" not in text and b"Infinity" not in text:
            raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("nesting too deep") from None
    try:
        return json.loads(text, parse_float=parse_float)
    except RecursionError:
        raise ValueError("nesting too deep") from None


def _exact_float(text: str) -> float:
    """A float that has all digits of `text` (17 significant ones always fit)."""
    value = float(text)
    if Decimal(text) not in (Decimal(repr(value)), Decimal(f"{value:.17g}")):
        raise ValueError(f"{text} has more digits than a float holds: write it as a string")
    return value


def _json_batches(
    path: Path,
) -> Iterator[tuple[int, list[dict[str, Any]], list[int], list[BadLine]]]:
    for chunk, rows in groupby(_chunked_rows(path, False), key=itemgetter(0)):
        while part := list(islice(rows, 4096)):
            good = [(number, row) for _, number, row in part if isinstance(row, dict)]
            bad = [row for _, _, row in part if isinstance(row, BadLine)]
            yield chunk, [row for _, row in good], [number for number, _ in good], bad
