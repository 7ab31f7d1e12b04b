"""The five-field parquet file: one schema, one set of writer settings, streamed both ways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reprise.core.errors import OperatorError
from reprise.core.files import writing

__all__ = [
    "FIELDS",
    "ROW_GROUP_ROWS",
    "columns_missing",
    "footer_metadata",
    "open_parquet",
    "require_file",
    "row_schema",
    "write_batches",
    "write_rows",
]

# The five columns of verl's data format, in the order in which its documentation gives them
# (docs/preparation/prepare_data.rst at 220e903).
FIELDS = ("data_source", "prompt", "ability", "reward_model", "extra_info")

# Row groups are cut by rows alone, so that the bytes do not depend on how the rows arrived.
ROW_GROUP_ROWS = 16_384

_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
_REWARD = pa.struct([("style", pa.string()), ("ground_truth", pa.string())])
_EXTRA = pa.struct([("split", pa.string()), ("index", pa.int64())])


def row_schema(
    extra_info: pa.DataType | None = None,
    message: pa.DataType | None = None,
    reward_model: pa.DataType | None = None,
) -> pa.Schema:
    """The schema of a five-field file; the three nested types default to the plain ones.

    Defaults: messages of role and content, reward_model of style and ground_truth (strings),
    extra_info of split (string) and index (int64).
    """
    return pa.schema(
        [
            ("data_source", pa.string()),
            ("prompt", pa.list_(message or _MESSAGE)),
            ("ability", pa.string()),
            ("reward_model", reward_model or _REWARD),
            ("extra_info", extra_info or _EXTRA),
        ]
    )


def write_batches(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write `batches` of `schema` under `path`, whole or not at all; return the number of rows.

    The bytes depend on the rows, the schema and the version of PyArrow only: row groups are
    regrouped, no library's schema is stored in the footer, and metadata is dropped.
    Raises OSError as the file system gives it and pa.ArrowInvalid for a batch of another schema.
    """
    plain = schema.remove_metadata()
    rows = 0
    with (
        writing(path) as file,
        pq.ParquetWriter(
            file,
            plain,
            version="2.6",
            data_page_version="1.0",
            compression="zstd",
            compression_level=3,
            use_dictionary=True,
            write_statistics=True,
            store_schema=False,
        ) as writer,
    ):
        for table in _regroup(plain, batches):
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
            rows += table.num_rows
    return rows


def _regroup(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of ROW_GROUP_ROWS rows each (the last may be shorter), in the order given."""
    waiting = schema.empty_table()
    for batch in batches:
        piece = pa.Table.from_batches([batch.replace_schema_metadata(None)]).cast(schema)
        waiting = pa.concat_tables([waiting, piece])
        while waiting.num_rows >= ROW_GROUP_ROWS:
            yield waiting.slice(0, ROW_GROUP_ROWS)
            waiting = waiting.slice(ROW_GROUP_ROWS)
    if waiting.num_rows:
        yield waiting


def write_rows(
    path: Path, rows: Iterable[Mapping[str, Any]], schema: pa.Schema | None = None
) -> int:
    """Write five-field dicts under `path` (see `write_batches`); return the number of rows.

    Raises pa.ArrowInvalid or pa.ArrowTypeError when a value does not fit the schema.
    """
    chosen = schema or row_schema()
    return write_batches(path, chosen, _as_batches(iter(rows), chosen))


def _as_batches(rows: Iterator[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while chunk := list(islice(rows, 2048)):
        yield pa.RecordBatch.from_pylist([dict(row) for row in chunk], schema=schema)


def require_file(path: Path) -> None:
    """Raise OperatorError unless `path` is a regular file."""
    if path.is_file():
        return
    if path.is_dir():
        raise OperatorError("data-file.folder", str(path), path=path)
    if path.exists():
        # Opening a pipe that nobody writes to never ends.
        raise OperatorError("data-file.not-regular", str(path))
    if "=" in path.name:
        raise OperatorError("data-file.setting", str(path), path=path)
    raise OperatorError("data-file.not-found", str(path))


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a parquet file for streaming: pages are read as they are needed, not a row group whole.

    Raises OperatorError when it is missing, unreadable, or not a parquet file.
    """
    require_file(path)
    try:
        return pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False, memory_map=False)
    except (OSError, pa.ArrowException) as error:
        raise OperatorError(
            "data-file.not-parquet", str(path), reason=str(error).splitlines()[0]
        ) from None


def footer_metadata(file: pq.ParquetFile) -> Mapping[str, bytes]:
    """The key-value metadata of the footer (for example `huggingface`, `ARROW:schema`)."""
    raw: Mapping[bytes, bytes] = file.metadata.metadata or {}
    return {key.decode("utf-8", "replace"): value for key, value in raw.items()}


def columns_missing(names: Sequence[str], wanted: Sequence[str] = FIELDS) -> list[str]:
    """Those of `wanted` that are not among `names`, in the order of `wanted`."""
    return [name for name in wanted if name not in names]
