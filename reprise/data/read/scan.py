"""One pass over a data file: its faults with their rows, and its contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reprise.data.read.arrow import Column, pc
from reprise.data.read.batches import Batch
from reprise.data.read.chunks import Chunks
from reprise.data.read.growing import Growing
from reprise.data.read.keys import Keys, TextMemo, combine, measure_prompts
from reprise.data.read.media import MEDIA, media_rows
from reprise.data.read.parquet import FIELDS
from reprise.data.read.reading import BadLine, Source
from reprise.data.read.rows import Fault, row_faults
from reprise.data.read.shape import Shape

__all__ = ["FileScan", "RowList", "scan_file"]

SHOWN_ROWS = 20


@dataclass(slots=True)
class RowList:
    """How many rows, and the numbers of the first of them."""

    count: int = 0
    shown: list[int] = field(default_factory=list)

    def add(self, number: int) -> None:
        """Count one more row."""
        self.count += 1
        if len(self.shown) < SHOWN_ROWS:
            self.shown.append(number)

    def text(self) -> str:
        """For example `rows 1, 2, 5` or `rows 1, 2, ... (1,200 rows)`."""
        listed = ", ".join(str(number) for number in self.shown)
        if self.count == 1:
            return f"row {listed}"
        more = f", ... ({self.count:,} rows)" if self.count > len(self.shown) else ""
        return f"rows {listed}{more}"


@dataclass(slots=True)
class FileScan:
    """What one pass over a file found. Arrays have one entry a row, in the file's order.

    `line_numbers` are the rows' lines (JSON lines only), `prompts`, `pairs` and `indices` 64-bit
    keys (prompt; prompt with answer; extra_info.index), `chars` the characters of a prompt.
    `sparse` counts the nulls that a reader puts where an object lacks a key others have.
    """

    source: Source
    rows: int = 0
    faults: dict[Fault, RowList] = field(default_factory=dict)
    bad_lines: list[BadLine] = field(default_factory=list)
    sources: Counter[str] = field(default_factory=Counter)
    source_rows: dict[str, RowList] = field(default_factory=dict)
    roles: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    sparse: Counter[str] = field(default_factory=Counter)
    shape: Shape = field(default_factory=Shape)
    chunks: Chunks = field(default_factory=Chunks)
    media: dict[str, RowList] = field(default_factory=dict)
    line_numbers: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    prompts: Keys = field(default_factory=lambda: np.empty(0, np.uint64))
    pairs: Keys = field(default_factory=lambda: np.empty(0, np.uint64))
    indices: Keys = field(default_factory=lambda: np.empty(0, np.uint64))
    chars: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def number(self, place: int) -> int:
        """The number of the row at a 0-based place, as an operator counts: from 1, or its line."""
        return place + 1 if self.source.parquet else int(self.line_numbers[place])

    def row_list(self, places: npt.NDArray[np.int64]) -> RowList:
        """The rows at 0-based places, counted and the first of them named."""
        rows = RowList(len(places))
        rows.shown.extend(self.number(int(place)) for place in places[:SHOWN_ROWS])
        return rows

    def types(self) -> dict[str, pa.DataType]:
        """The Arrow type of each column, as a reader of the whole file would infer it."""
        if self.source.schema is not None:
            return {item.name: item.type for item in self.source.schema}
        return {name: shape.arrow_type(pa.null()) for name, shape in self.shape.fields.items()}


class _Parts:
    """The arrays of a scan while they grow; the numbers of parquet rows need no array."""

    def __init__(self, rows: int | None) -> None:
        self.numbers = Growing(np.int64, 1 if rows is not None else None)
        self.prompts = Growing(np.uint64, rows)
        self.pairs = Growing(np.uint64, rows)
        self.indices = Growing(np.uint64, rows)
        self.chars = Growing(np.int32, rows)

    def close(self, scan: FileScan) -> None:
        """Hand the arrays over."""
        scan.prompts, scan.pairs = self.prompts.close(), self.pairs.close()
        scan.indices, scan.chars = self.indices.close(), self.chars.close()
        scan.line_numbers = self.numbers.close()


def scan_file(
    source: Source,
    prompt_key: str = "prompt",
    custom_reward: bool = False,
    progress: Callable[[int], None] | None = None,
) -> FileScan:
    """Read every row once, in batches; memory grows by 28 bytes a row (36 for JSON).

    `progress` is called with the number of rows of each batch.
    Raises OperatorError when the file is damaged.
    """
    scan = FileScan(source)
    parts = _Parts(source.rows)
    memos = (TextMemo(), TextMemo(), TextMemo(), TextMemo())
    for batch, table, bad in source.batches(prompt_key):
        scan.bad_lines.extend(bad)
        _measure(parts, batch, source, memos)
        _judge_rows(scan, batch, prompt_key, custom_reward)
        _count(scan, batch, table, prompt_key)
        scan.rows += len(batch.numbers)
        if progress is not None:
            progress(len(batch.numbers))
    parts.close(scan)
    scan.chunks.close()
    for name, number in media_rows(source):
        scan.media.setdefault(name, RowList()).add(number)
    pa.default_memory_pool().release_unused()
    return scan


def _judge_rows(scan: FileScan, batch: Batch, prompt_key: str, custom_reward: bool) -> None:
    is_json = scan.source.schema is None
    for number, row in batch.rows(batch.suspects):
        for fault in row_faults(row, prompt_key, custom_reward):
            scan.faults.setdefault(fault, RowList()).add(number)
        if is_json:
            scan.shape.observe(row, number)
            scan.chunks.observe(row, number, batch.chunk)
            for name in MEDIA:
                if row.get(name):
                    scan.media.setdefault(name, RowList()).add(number)


def _count(scan: FileScan, batch: Batch, table: pa.RecordBatch | None, prompt_key: str) -> None:
    for value, count in _value_counts(batch.sources):
        scan.sources[value] += count
        rows = scan.source_rows.setdefault(value, RowList())
        if len(rows.shown) < SHOWN_ROWS:
            places = pc.indices_nonzero(pc.equal(batch.sources, value))[:SHOWN_ROWS]
            for place in places.to_pylist()[: SHOWN_ROWS - len(rows.shown)]:
                rows.shown.append(int(batch.numbers[place]))
        rows.count += count
    for value, count in _value_counts(batch.roles):
        scan.roles[value] += count
    for kind, count in _answer_kinds(batch.answers):
        scan.answers[kind] += count
    if table is not None:
        for name in dict.fromkeys((prompt_key, *FIELDS)):
            if name in table.schema.names:
                scan.sparse.update(dict(_null_fields(table.column(name), name)))


def _value_counts(column: Column) -> list[tuple[str, int]]:
    counted = pc.value_counts(column.drop_null())
    return [(item["values"], item["counts"]) for item in counted.to_pylist()]


# What an answer looks like, for `describe`: the first pattern that fits.
_ANSWER_KINDS = (
    ("integer", r"^[-+]?[0-9][0-9,]*$"),
    ("decimal", r"^[-+]?[0-9][0-9,]*\.[0-9]+$"),
    ("latex", r"\\"),
    ("choice", r"^\(?[A-J]\)?$"),
)


def _answer_kinds(answers: Column) -> list[tuple[str, int]]:
    """Counts by kind, each distinct answer of the batch checked once."""
    counted = pc.value_counts(answers.drop_null())
    texts, counts = counted.field("values"), counted.field("counts")
    left = pc.is_valid(texts)
    found = []
    for kind, pattern in _ANSWER_KINDS:
        hits = pc.and_(left, pc.match_substring_regex(texts, pattern))
        found.append((kind, pc.sum(counts.filter(hits)).as_py() or 0))
        left = pc.and_not(left, hits)
    found.append(("text", pc.sum(counts.filter(left)).as_py() or 0))
    return [(kind, count) for kind, count in found if count]


def _null_fields(column: Column, path: str) -> list[tuple[str, int]]:
    """Struct fields that are null although their object is there, with how often."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return _null_fields(pc.list_flatten(column), f"{path}[]")
    if not pa.types.is_struct(column.type):
        return []
    objects = column.drop_null() if column.null_count else column
    found = []
    for place in range(column.type.num_fields):
        name = f"{path}.{column.type.field(place).name}"
        child = objects.field(place)
        if child.null_count:
            found.append((name, child.null_count))
        if pa.types.is_nested(child.type):
            found.extend(_null_fields(child, name))
    return found


def _measure(
    parts: _Parts,
    batch: Batch,
    source: Source,
    memos: tuple[TextMemo, TextMemo, TextMemo, TextMemo],
) -> None:
    """Keep the keys and lengths of a batch, and suspect the rows with a blank message."""
    roles, texts, answers, indices = memos
    prompts = measure_prompts((roles, texts), batch.offsets, batch.roles, batch.texts)
    batch.suspects |= prompts.blank
    parts.prompts.add(prompts.keys)
    parts.pairs.add(combine(prompts.keys, answers.measure(batch.answers).keys))
    parts.indices.add(indices.measure(batch.indices).keys)
    parts.chars.add(prompts.chars)
    if not source.parquet:
        parts.numbers.add(batch.numbers)
