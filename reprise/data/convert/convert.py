"""`reprise data convert`: convert a user's own file to the five fields, with a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow as pa

from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file, writing
from reprise.core.findings import Report
from reprise.data.convert.answers import has_mark
from reprise.data.convert.mapping import ColumnMap
from reprise.data.convert.passes import COMPUTED, Choices, Kept, Tally, prompt_keys, run_pass
from reprise.data.convert.reshape import answer_text
from reprise.data.read.parquet import FIELDS, write_batches
from reprise.data.read.shape import Shape
from reprise.data.read.tables import Table, open_table

__all__ = ["Choices", "convert"]


def convert(
    command: str,
    source: Path,
    target: Path,
    choices: Choices,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Write `source` as a five-field file under `target` (.parquet or .jsonl).

    Two passes in constant memory (with `unique`, about 500 bytes per distinct prompt): the first
    finds every problem, the second writes. Nothing is written when a row is rejected, unless
    rejected rows are to be dropped. The same input gives the same bytes.
    Raises OperatorError when the input cannot be read or the output must not be written.
    """
    table = open_table(source)
    _may_write(source, target, choices)
    report = Report(command)
    excluded = prompt_keys(choices.without)
    choices = replace(choices, mapping=replace(choices.mapping, marked=_any_mark(table, choices)))
    tally = Tally()
    for kept in run_pass(table, choices, excluded, tally, progress):
        _observe(tally, table, kept, choices.mapping)
    _judge(report, table, tally, choices, target)
    if not list(report.errors()):
        mapping = choices.mapping
        schema = _schema(table, tally, mapping)
        again = run_pass(table, choices, excluded, Tally(), progress)
        passed = frozenset(n for n in schema.names if _passed_on(table, n, mapping))
        _write(target, schema, again, passed, _new_extra(table, tally, mapping))
        report.data["sha256"] = sha256_file(target)
        report.passed("data-convert")
    report.data |= {
        "input": str(source),
        "output": str(target),
        "rows_read": tally.read,
        "rows_written": 0 if list(report.errors()) else tally.kept,
        "rejected": {reason: rows.count for reason, rows in tally.rejected.items()},
        "changes": {change: rows.count for change, rows in tally.changes.items()},
        "repeats_left_out": tally.repeated,
        "prompts_left_out": tally.left_out,
    }
    return report


def _any_mark(table: Table, choices: Choices) -> bool:
    """Does any row mark its final answer? Reads up to the first one that does."""
    mapping = choices.mapping
    if mapping.five_fields or mapping.extract != "auto":
        return False
    for chunk in table.chunks():
        for row in chunk.rows:
            text = answer_text(row, mapping) if isinstance(row, dict) else None
            if text is not None and has_mark(text):
                return True
    return False


def _may_write(source: Path, target: Path, choices: Choices) -> None:
    if target.suffix not in (".parquet", ".jsonl"):
        raise OperatorError(
            "data-convert.cannot-write",
            str(target),
            suffix=target.suffix or "a file without an extension",
        )
    if target.exists() and target.samefile(source):
        raise OperatorError("data-convert.output-is-input", str(target))
    if target.exists() and not choices.force:
        raise OperatorError("data-convert.exists", str(target))
    if not target.parent.is_dir():
        raise OperatorError("data-convert.no-folder", str(target.parent), parent=target.parent)


def _passed_on(table: Table, name: str, mapping: ColumnMap) -> bool:
    """Whether a column's Arrow values are written as they are (five-field parquet input only)."""
    if table.schema is None or not mapping.five_fields or name in mapping.drop:
        return False
    return name not in COMPUTED and name in table.schema.names


def _observe(tally: Tally, table: Table, kept: Kept, mapping: ColumnMap) -> None:
    for number, row in zip(kept.numbers, kept.rows, strict=True):
        for name, value in row.items():
            if not _passed_on(table, name, mapping):
                tally.shapes.setdefault(name, Shape()).observe(value, number)


def _judge(report: Report, table: Table, tally: Tally, choices: Choices, target: Path) -> None:
    path = str(table.path)
    for reason, rows in tally.rejected.items():
        where = f"{path}:{rows.shown[0]}"
        if choices.drop_rejected:
            report.warn("data-rejected.left-out", where, reason=reason, rows=rows.text())
        else:
            report.failed("data-rejected.rejected", where, reason=reason, rows=rows.text())
    for change, rows in tally.changes.items():
        report.note("data-changed.changed", path, change=change, rows=rows.text())
    if tally.left_out:
        report.note("data-leak.left-out", path, count=tally.left_out)
    if choices.unique:
        report.note("data-repeats.left-out", path, count=tally.repeated)
        _report_conflicts(report, path, tally)
    if not tally.read:
        report.failed("data-convert.empty", path)
    elif not tally.kept:
        report.failed("data-convert.nothing-left", path)
    _judge_shapes(report, table, tally, target)


def _report_conflicts(report: Report, path: str, tally: Tally) -> None:
    for key, text in list(tally.clashing.items())[:20]:
        answers = ", ".join(f"{a[:40]!r} (row {row})" for a, row in tally.answers[key].items())
        report.warn("data-conflict.kept", path, answers=answers, prompt=text)
    if len(tally.clashing) > 20:
        report.note("data-conflict.count", path, count=len(tally.clashing))


def _judge_shapes(report: Report, table: Table, tally: Tally, target: Path) -> None:
    """Values that do not fit one column type, and messages that would get further keys."""
    path = str(table.path)
    for name, shape in tally.shapes.items():
        for clash in shape.clashes(name):
            report.failed("data-type.mixed-input", path, places=clash.text())
        sparse = list(shape.sparse_fields(name))
        if not sparse:
            continue
        listed = ", ".join(
            f"{key} (first in row {row}, absent {count:,} times)" for key, count, row in sparse[:8]
        )
        if name == "prompt" and target.suffix == ".parquet":
            report.failed(
                "data-null-fill.refused",
                path,
                listed=listed,
                jsonl=target.with_suffix(".jsonl").name,
            )
        else:
            report.note("data-null-fill.other-columns", path, listed=listed)


def _new_extra(table: Table, tally: Tally, mapping: ColumnMap) -> bool:
    """Whether all rows lack extra_info, so that it is made with the index of the row."""
    shape = tally.shapes.get("extra_info")
    return not _passed_on(table, "extra_info", mapping) and (
        shape is None or set(shape.kinds) == {"null"}
    )


def _schema(table: Table, tally: Tally, mapping: ColumnMap) -> pa.Schema:
    """The columns to write: the five fields first, then what else the input has."""
    types = {name: shape.arrow_type() for name, shape in tally.shapes.items()}
    if table.schema is not None:
        types |= {i.name: i.type for i in table.schema if _passed_on(table, i.name, mapping)}
    if _new_extra(table, tally, mapping):
        types["extra_info"] = pa.struct([("index", pa.int64())])
    others = [name for name in types if name not in FIELDS]
    return pa.schema([(name, types[name]) for name in (*FIELDS, *others)])


def _write(
    target: Path, schema: pa.Schema, kept: Iterator[Kept], passed: frozenset[str], new_extra: bool
) -> None:
    if target.suffix == ".jsonl":
        with writing(target) as file:
            for part in kept:
                for row in part.rows:
                    file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        return
    write_batches(target, schema, _batches(schema, kept, passed, new_extra))


def _batches(
    schema: pa.Schema, kept: Iterator[Kept], passed: frozenset[str], new_extra: bool
) -> Iterator[pa.RecordBatch]:
    """Record batches of the computed columns and of those that pass through untouched."""
    written = 0
    for part in kept:
        arrays = []
        for item in schema:
            if part.columns is not None and item.name in passed:
                arrays.append(
                    part.columns.column(item.name).take(pa.array(part.places, pa.int64()))
                )
                continue
            values = [row.get(item.name) for row in part.rows]
            if item.name == "extra_info" and new_extra:
                values = [{"index": written + place} for place in range(len(values))]
            arrays.append(pa.array(values, item.type))
        written += len(part.rows)
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
