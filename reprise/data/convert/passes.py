"""One pass over a user's file: its rows converted, counted, and left out as was chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from reprise.data.check.repeats import prompt_text
from reprise.data.convert.mapping import ColumnMap
from reprise.data.convert.reshape import Refused, reshape
from reprise.data.read.keys import text_key
from reprise.data.read.reading import BadLine
from reprise.data.read.scan import RowList
from reprise.data.read.shape import Shape
from reprise.data.read.tables import Table, open_table

__all__ = ["COMPUTED", "Choices", "Kept", "Tally", "prompt_keys", "run_pass"]

# The fields that are made anew; all other columns are kept as they are.
COMPUTED = ("data_source", "prompt", "ability", "reward_model")


@dataclass(frozen=True, slots=True)
class Choices:
    """What the operator chose besides the mapping of columns.

    `unique` keeps the first of equal prompts and answers, `without` leaves out the prompts of
    other files, `drop_rejected` goes on without the rows that cannot be converted, `force`
    replaces an existing output.
    """

    mapping: ColumnMap = field(default_factory=ColumnMap)
    unique: bool = False
    without: tuple[Path, ...] = ()
    drop_rejected: bool = False
    force: bool = False


@dataclass(slots=True)
class Tally:
    """What the first pass found, and the shapes of the columns that will be written."""

    read: int = 0
    kept: int = 0
    repeated: int = 0
    left_out: int = 0
    rejected: dict[str, RowList] = field(default_factory=dict)
    changes: dict[str, RowList] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    answers: dict[int, dict[str, int]] = field(default_factory=dict)
    clashing: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kept:
    """The rows of one chunk that are written: their places in it, numbers and values."""

    places: list[int]
    numbers: list[int]
    rows: list[dict[str, Any]]
    columns: pa.RecordBatch | None


def prompt_keys(paths: tuple[Path, ...]) -> set[int]:
    """The prompts of five-field files that are to be left out."""
    found = set()
    for path in paths:
        for chunk in open_table(path).chunks():
            for row in chunk.rows:
                if isinstance(row, dict) and "prompt" in row:
                    found.add(_key(row["prompt"]))
    return found


def _key(prompt: object) -> int:
    """A key of a prompt's roles and contents, in canonical form."""
    messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    parts = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else message
        shown = content if isinstance(content, str) else orjson.dumps(content, default=str).decode()
        role = message.get("role") if isinstance(message, dict) else None
        parts.append(f"{role}:{text_key(shown)}")
    return text_key("|".join(parts))


def run_pass(
    table: Table,
    choices: Choices,
    excluded: set[int],
    tally: Tally,
    progress: Callable[[int], None] | None,
) -> Iterator[Kept]:
    """One pass over the input: converts, counts, and leaves out what the choices say."""
    seen: set[tuple[int, int]] = set()
    for chunk in table.chunks():
        kept = Kept([], [], [], chunk.columns)
        for place, (number, row) in enumerate(zip(chunk.numbers, chunk.rows, strict=True)):
            converted = _convert_row(row, number, choices, tally)
            tally.read += 1
            if converted is None:
                continue
            key = _key(converted["prompt"])
            truth = str(converted["reward_model"]["ground_truth"])
            if key in excluded:
                tally.left_out += 1
                continue
            if choices.unique:
                _note_answer(tally, key, truth, number, converted)
                if (key, text_key(truth)) in seen:
                    tally.repeated += 1
                    continue
                seen.add((key, text_key(truth)))
            kept.places.append(place)
            kept.numbers.append(number)
            kept.rows.append(converted)
        tally.kept += len(kept.rows)
        if progress is not None:
            progress(len(chunk.rows))
        yield kept


def _convert_row(
    row: dict[str, Any] | BadLine, number: int, choices: Choices, tally: Tally
) -> dict[str, Any] | None:
    try:
        if isinstance(row, BadLine):
            raise Refused(f"not a row: {row.reason}")
        done = reshape(row, choices.mapping, tally.read)
    except Refused as refusal:
        tally.rejected.setdefault(str(refusal), RowList()).add(number)
        return None
    for change in dict.fromkeys(done.changes):
        tally.changes.setdefault(change, RowList()).add(number)
    if not choices.mapping.five_fields:
        return done.fields
    unwanted = {*COMPUTED, *choices.mapping.drop}
    others = {key: value for key, value in row.items() if key not in unwanted}
    if not others.get("extra_info") and "extra_info" in others:
        others["extra_info"] = None
    return done.fields | others


def _note_answer(tally: Tally, key: int, truth: str, number: int, row: dict[str, Any]) -> None:
    """Remember the first row of each answer to a prompt, so that conflicts can be listed."""
    answers = tally.answers.setdefault(key, {})
    answers.setdefault(truth, number)
    if len(answers) > 1:
        tally.clashing.setdefault(key, prompt_text(row["prompt"]))
