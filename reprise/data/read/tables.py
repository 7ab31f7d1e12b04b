"""A user's own file as numbered rows: parquet, JSON lines, a JSON array or CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from reprise.core.errors import OperatorError
from reprise.data.read.parquet import open_parquet, require_file
from reprise.data.read.reading import BadLine, json_rows

__all__ = ["Chunk", "Table", "open_table"]

_CHUNK = 4096


@dataclass(slots=True)
class Chunk:
    """Some rows with their numbers; `columns` are the same rows in Arrow (parquet only)."""

    numbers: list[int]
    rows: list[dict[str, Any] | BadLine]
    columns: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A file that can be read any number of times. `schema` is None unless it is parquet."""

    path: Path
    schema: pa.Schema | None
    rows: int | None

    def chunks(self) -> Iterator[Chunk]:
        """The rows in chunks. Raises OperatorError when the file turns out to be damaged."""
        try:
            if self.schema is not None:
                yield from self._parquet()
            else:
                rows = (
                    _csv_rows(self.path)
                    if self.path.suffix == ".csv"
                    else json_rows(self.path, True)
                )
                while part := list(islice(rows, _CHUNK)):
                    yield Chunk([number for number, _ in part], [row for _, row in part])
        except (OSError, pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
            reason = str(error).splitlines()[0]
            raise OperatorError("data-file.damaged-input", str(self.path), reason=reason) from None

    def _parquet(self) -> Iterator[Chunk]:
        first = 1
        for batch in open_parquet(self.path).iter_batches(batch_size=_CHUNK):
            numbers = list(range(first, first + batch.num_rows))
            first += batch.num_rows
            yield Chunk(numbers, list(batch.to_pylist()), batch)


def open_table(path: Path) -> Table:
    """Open a file by its ending (.parquet, .jsonl, .json, .csv).

    Raises OperatorError when it is missing or of another kind.
    """
    if path.suffix == ".parquet":
        file = open_parquet(path)
        return Table(path, file.schema_arrow, file.metadata.num_rows)
    require_file(path)
    if path.suffix not in (".jsonl", ".json", ".csv"):
        raise OperatorError(
            "data-file.unknown-ending", str(path), suffix=path.suffix or "a file without an ending"
        )
    return Table(path, None, None)


def _csv_rows(path: Path) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """Rows of a CSV file with a header; numbered by the line on which each ends."""
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        for row in reader:
            if None in row or None in row.values():
                yield (
                    reader.line_num,
                    BadLine(reader.line_num, "the number of cells differs from the header"),
                )
            else:
                yield reader.line_num, row
