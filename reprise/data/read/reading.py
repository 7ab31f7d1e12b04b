"""Rows of a parquet or JSON lines file as a stream of batches, in constant memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from reprise.core.errors import OperatorError
from reprise.data.read.batches import BATCH_ROWS, Batch, from_arrow, from_dicts
from reprise.data.read.parquet import FIELDS, footer_metadata, open_parquet, require_file

__all__ = ["BadLine", "Source", "json_rows", "open_source"]


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line of a JSON lines file that is no JSON object."""

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
        for dicts, numbers, bad in _json_batches(self.path):
            yield from_dicts(dicts, np.asarray(numbers, np.int64), prompt_key), None, bad

    def _arrow_batches(
        self, prompt_key: str, fields: tuple[str, ...]
    ) -> Iterator[tuple[Batch, pa.RecordBatch | None, list[BadLine]]]:
        wanted = [name for name in dict.fromkeys((*fields, prompt_key)) if name in self.columns()]
        first = 1
        for table in _guarded(open_parquet(self.path), wanted, self.path):
            yield from_arrow(table, first, prompt_key), table, []
            first += table.num_rows


def _guarded(file: pq.ParquetFile, columns: list[str], path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of a file, each read while the one before is looked at.

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
            "data-file.damaged", str(path), splitlines=str(error).splitlines()[0]
        ) from None


def open_source(path: Path) -> Source:
    """Open a data file by its name's ending (.parquet, .jsonl, .json, as verl does).

    Raises OperatorError when it is missing, unreadable or of another kind.
    """
    if path.suffix == ".parquet":
        file = open_parquet(path)
        return Source(
            path, True, file.schema_arrow, file.metadata.num_rows, dict(footer_metadata(file))
        )
    require_file(path)
    if path.suffix not in (".jsonl", ".json"):
        raise OperatorError(
            "data-file.verl-reads-parquet",
            str(path),
            suffix=path.suffix or "a bare name",
            path=path,
            with_suffix=path.with_suffix(".parquet"),
        )
    return Source(path, False)


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """Numbered rows of a JSON lines file, or of one JSON array (which is read whole).

    The number is the line's, or the place in the array. Raises OSError as the file system does.
    """
    with path.open("rb") as file:
        start = file.read(64).lstrip()
        file.seek(0)
        if start.startswith(b"["):
            yield from _array_rows(file.read())
            return
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, _parse(line, number)


def _array_rows(text: bytes) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    try:
        items = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        yield 1, BadLine(1, str(error))
        return
    for number, item in enumerate(items, 1):
        yield number, item if isinstance(item, dict) else BadLine(number, "not an object")


def _parse(line: bytes, number: int) -> dict[str, Any] | BadLine:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return BadLine(number, str(error))
    return value if isinstance(value, dict) else BadLine(number, "not an object")


def _json_batches(
    path: Path,
) -> Iterator[tuple[list[dict[str, Any]], list[int], list[BadLine]]]:
    numbered = json_rows(path)
    while chunk := list(islice(numbered, 4096)):
        good = [(number, row) for number, row in chunk if isinstance(row, dict)]
        bad = [row for _, row in chunk if isinstance(row, BadLine)]
        yield [row for _, row in good], [number for number, _ in good], bad
