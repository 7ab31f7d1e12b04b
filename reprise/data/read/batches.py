"""Rows in batches, from parquet or JSON lines, each batch in one columnar form.

A parquet batch is checked column by column; only rows that may have a fault become Python
objects. The row rules (rows.py) are the only definition of a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from reprise.data.read.arrow import Column, pc
from reprise.data.read.rows import ROLES, SEARCH_PREFIX, as_list

__all__ = ["BATCH_ROWS", "Batch", "from_arrow", "from_dicts"]

BATCH_ROWS = 16_384

Mask = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int64]


@dataclass(slots=True)
class Batch:
    """Some rows: messages flattened (`offsets` bounds each row's), answers, sources, suspects.

    `numbers` holds the 1-based number of each row (of its line in a JSON lines file), `offsets`
    one entry more. `chunk` counts the chunks of a JSON lines file (chunks.py). `suspects` flags the
    rows that may have a fault (blank messages apart, which the scan adds: it knows them by their
    key).
    """

    numbers: npt.NDArray[np.int64]
    offsets: Offsets
    roles: Column
    texts: Column
    answers: Column
    sources: Column
    indices: Column
    suspects: Mask
    chunk: int = 0
    _table: Column | None = None
    _dicts: list[dict[str, Any]] = field(default_factory=list)

    def rows(self, wanted: Mask) -> Iterator[tuple[int, dict[str, Any]]]:
        """The rows where `wanted` (one flag a row) is set, as dicts with their numbers."""
        places = np.flatnonzero(wanted)
        if self._table is None:
            yield from ((int(self.numbers[i]), self._dicts[int(i)]) for i in places)
            return
        for start in range(0, len(places), 1024):
            part = places[start : start + 1024]
            dicts = self._table.take(pa.array(part)).to_pylist()
            yield from zip(self.numbers[part].tolist(), dicts, strict=True)


def from_arrow(table: pa.RecordBatch, first: int, prompt_key: str) -> Batch:
    """One batch of a parquet file whose first row has number `first`; any types will do."""
    numbers = np.arange(first, first + table.num_rows)
    prompt = _column(table, prompt_key)
    truth = _child(_column(table, "reward_model"), "ground_truth")
    sources = _column(table, "data_source")
    index = _child(_column(table, "extra_info"), "index")
    plain = _is_text_or_none(truth) and _is_plain(sources) and _is_plain(index)
    if prompt is None or not _is_messages(prompt.type) or not plain:
        return from_dicts(table.to_pylist(), numbers, prompt_key)
    offsets, messages = _flatten(prompt)
    roles, texts = (_text(messages.field(name)) for name in ("role", "content"))
    answers = _text(truth) if truth is not None else _nulls(table.num_rows)
    clean = _clean_prompts(prompt, offsets, messages, roles, texts) & _clean_texts(answers)
    clean &= _clean_source(sources) & _clean_extra(_column(table, "extra_info"))
    return Batch(
        numbers,
        offsets,
        roles,
        texts,
        answers,
        _text(sources) if sources is not None else _nulls(table.num_rows),
        _text(index) if index is not None else _nulls(table.num_rows),
        ~clean,
        _table=table,
    )


def from_dicts(
    rows: list[dict[str, Any]], numbers: npt.NDArray[np.int64], prompt_key: str, chunk: int = 0
) -> Batch:
    """One batch of rows that are already Python objects; every one is a suspect."""
    roles: list[str | None] = []
    texts: list[str | None] = []
    bounds = [0]
    for row in rows:
        for message in as_list(row.get(prompt_key)) or ():
            known = message if isinstance(message, Mapping) else {"content": message}
            roles.append(_flat(known.get("role")))
            texts.append(_flat(known.get("content")))
        if isinstance(row.get(prompt_key), str | Mapping):
            roles.append(None)
            texts.append(_flat(row[prompt_key]))
        bounds.append(len(texts))
    return Batch(
        numbers,
        np.asarray(bounds, np.int64),
        pa.array(roles, pa.string()),
        pa.array(texts, pa.string()),
        pa.array([_flat(_get(row, "reward_model", "ground_truth")) for row in rows], pa.string()),
        pa.array([_flat(row.get("data_source")) for row in rows], pa.string()),
        pa.array([_flat(_get(row, "extra_info", "index")) for row in rows], pa.string()),
        np.ones(len(rows), np.bool_),
        chunk,
        _dicts=rows,
    )


def _get(row: Mapping[str, Any], column: str, key: str) -> object:
    value = row.get(column)
    return value.get(key) if isinstance(value, Mapping) else None


def _flat(value: object) -> str | None:
    """A value as comparable text: strings as they are, everything else as JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    try:
        return orjson.dumps(
            value, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY
        ).decode()
    except TypeError:
        return ascii(value)


def _column(table: pa.RecordBatch, name: str) -> Column | None:
    return table.column(name) if name in table.schema.names else None


def _child(column: Column | None, name: str) -> Column | None:
    """A struct's field with the struct's own nulls, or None when there is none."""
    if column is None or not pa.types.is_struct(column.type):
        return None
    return pc.struct_field(column, [name]) if column.type.get_field_index(name) >= 0 else None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_text_or_none(column: Column | None) -> bool:
    return column is None or _is_text(column.type)


def _is_plain(column: Column | None) -> bool:
    """Whether Arrow casts any value of the column to text; not so lists, structs, raw bytes."""
    if column is None or _is_text(column.type):
        return True
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    return any(is_kind(column.type) for is_kind in kinds)


def _is_messages(kind: pa.DataType) -> bool:
    """Whether a type is a list of structs with string fields role and content."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    message = kind.value_type
    return pa.types.is_struct(message) and all(
        message.get_field_index(name) >= 0 and _is_text(message.field(name).type)
        for name in ("role", "content")
    )


def _flatten(prompt: Column) -> tuple[Offsets, Column]:
    """Offsets from 0 and the messages of one list column; null lists are empty."""
    lengths = pc.list_value_length(prompt).fill_null(0).to_numpy()
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    return offsets, pc.list_flatten(prompt)


def _text(column: Column) -> Column:
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def _nulls(count: int) -> Column:
    return pa.nulls(count, pa.string())


def _flags(mask: Column) -> Mask:
    """A boolean Arrow array as numpy; null is False."""
    flags: Mask = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return flags


def _clean_texts(column: Column) -> Mask:
    """Not null, not blank, no blanks around (those of ASCII; others are checked one by one)."""
    trimmed = pc.equal(pc.utf8_trim_whitespace(column), column)
    return _flags(pc.and_(trimmed, pc.greater(pc.binary_length(column), 0)))


def _clean_source(column: Column | None) -> Mask | np.bool_:
    if column is None or not _is_text(column.type):
        return np.bool_(False)
    # Scorers of search data want another ground truth than text.
    search = pc.starts_with(column, SEARCH_PREFIX)
    return _flags(pc.and_(column.is_valid(), pc.invert(search)))


def _clean_extra(column: Column | None) -> np.bool_:
    return np.bool_(column is None or pa.types.is_struct(column.type))


def _clean_prompts(
    prompt: Column,
    offsets: Offsets,
    messages: Column,
    roles: Column,
    texts: Column,
) -> Mask:
    """Prompts whose messages all have a known role and a content, and do not end with an answer."""
    role = pc.index_in(roles, value_set=pa.array(ROLES))
    good = _flags(role.is_valid()) & _flags(messages.is_valid())
    good &= _flags(texts.is_valid())
    bad_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(~good)])
    has_none_bad = bad_before[offsets[1:]] == bad_before[offsets[:-1]]
    filled = np.diff(offsets) > 0
    last = np.zeros(len(filled), np.bool_)
    is_answer = _flags(pc.equal(roles, "assistant"))
    last[filled] = is_answer[offsets[1:][filled] - 1]
    clean: Mask = has_none_bad & filled & ~last & _flags(prompt.is_valid())
    return clean
