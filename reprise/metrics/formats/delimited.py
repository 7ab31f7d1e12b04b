"""CSV and TSV of any dialect: long or wide, also the exports of W&B, MLflow and SwanLab."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.core.findings import Severity, make_finding
from reprise.metrics.formats.lines import as_step, as_time, whole_lines
from reprise.metrics.formats.names import STEP_NAMES, natural
from reprise.metrics.rows import LongRows, Rows

__all__ = ["read_delimited"]

_DELIMITERS = (",", "\t", ";", "|")
# A tracker's web page exports columns "run - metric", with __MIN and __MAX of each.
_EXTREMES = ("__MIN", "__MAX")
_TIMES = ("_timestamp", "timestamp")
_NOT_METRICS = {*STEP_NAMES, *_TIMES, "_runtime", "relative time (process)", "wall time"}
_RUN_NAMES = ("run id", "run_id", "run", "run name", "name")


class _Cells:
    """Cells that are not numeric: counted by column, with one example."""

    def __init__(self, comma: bool) -> None:
        self.comma = comma
        self.bad: dict[str, tuple[int, int, str]] = {}

    def number(self, text: str, column: str, line: int) -> float | None:
        cell = text.strip()
        if not cell:
            return None
        if self.comma:
            cell = cell.replace(",", ".")
        try:
            return float(cell)
        except ValueError:
            count, first, example = self.bad.get(column, (0, line, cell[:40]))
            self.bad[column] = (count + 1, first, example)
            return None

    def report(self, path: Path, rows: Rows) -> None:
        for column, (count, line, example) in sorted(self.bad.items()):
            known = {"count": count, "column": column, "example": example}
            where = f"{path}:{line}"
            rows.findings.append(
                make_finding(Severity.WARNING, "metrics-cell.text", where, None, "", known)
            )


@dataclass(frozen=True, slots=True)
class _Table:
    """A file as read: its header, its body as (line, cells), and the column of the step.

    `series` is the run that the caller named.
    """

    path: Path
    header: list[str]
    body: list[tuple[int, list[str]]]
    step: int
    series: str | None

    def choose(self, names: Iterable[str]) -> str | None:
        """The run to read among `names`; None where the file has one or does not name any."""
        known, series, where = list(dict.fromkeys(names)), self.series, str(self.path)
        if series is not None and series in known:
            return series
        if series is not None and known:
            raise OperatorError("metrics-runs.unknown", where, name=series, runs=", ".join(known))
        if len(known) > 1:
            more = f" and {len(known) - 8} more" if len(known) > 8 else ""
            shown = ", ".join(known[:8]) + more
            raise OperatorError(
                "metrics-runs.several", where, count=len(known), runs=shown, first=known[0]
            )
        return known[0] if known else None

    def owner(self, at: Mapping[str, int]) -> tuple[int, str] | None:
        """Column and value that select one run; None where none of the columns `at` names runs."""
        for name in ("name", "run name", "run", "run id", "run_id"):
            if name not in at:
                continue
            column = at[name]
            values = [row[column].strip() for _, row in self.body if len(row) > column]
            ids = next((at[n] for n in ("run id", "run_id") if n in at), column)
            keys = {row[ids].strip() for _, row in self.body if len(row) > max(ids, column)}
            if len(set(values)) < len(keys):
                column = ids  # Two runs of one name: only the id tells them apart.
                values = [row[column].strip() for _, row in self.body if len(row) > column]
            chosen = self.choose(values)
            return None if chosen is None else (column, chosen)
        return None

    def of(self, owner: tuple[int, str] | None) -> Iterator[tuple[int, list[str]]]:
        """The lines of the body that belong to one run."""
        for number, row in self.body:
            if owner is None or (len(row) > owner[0] and row[owner[0]].strip() == owner[1]):
                yield number, row


def read_delimited(path: Path, rows: Rows, series: str | None) -> None:
    """Read a table of metrics; `series` names one run of an export with several.

    A cell that is not numeric is left out and counted; its row stays. Raises OperatorError for a
    file without a column of steps, and for several runs of which none was named.
    """
    text = _decode(b"".join(whole_lines(path, rows)))
    first = text.split("\n", 1)[0]
    delimiter = max(_DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header = [cell.strip() for cell in next(reader, [])]
    lower = [cell.lower() for cell in header]
    step = next((lower.index(name) for name in STEP_NAMES if name in lower), None)
    if step is None:
        columns = ", ".join(header[:6]) or "an empty line"
        raise OperatorError("metrics-header.no-step", f"{path}:1", columns=columns)
    cells = _Cells(comma=delimiter == ";")
    table = _Table(path, header, [(reader.line_num, row) for row in reader if row], step, series)
    if not ({"metric", "key"}.isdisjoint(lower) or "value" not in lower):
        damaged = _long(table, rows, cells)
    else:
        damaged = _wide(table, rows, cells)
    cells.report(path, rows)
    rows.damaged(path, damaged, "rows without a valid step were")


def _decode(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def _long(table: _Table, rows: Rows, cells: _Cells) -> list[int]:
    """Pour a table with one value a line into `rows`; the result is the damaged lines."""
    header = table.header
    at = {name.lower(): column for column, name in reversed(list(enumerate(header)))}
    metric, value = at.get("metric", at.get("key", 0)), at["value"]
    owner = table.owner(at)
    time = next((at[name] for name in _TIMES if name in at), None)
    long, damaged = LongRows(), []
    for number, row in table.of(owner):
        try:
            count = as_step(row[table.step])
            attempt = int(row[at["attempt"]]) if "attempt" in at else 0
            found = cells.number(row[value], row[metric], number)
            error = row[at["uncertainty"]] if "uncertainty" in at else ""
            sigma = float(error or "nan")
            stamp = as_time(row[time]) if time is not None else float("nan")
        except (ValueError, IndexError):
            damaged.append(number)
            continue
        if found is not None:
            long.add(natural(row[metric].strip()), count, found, sigma, stamp, attempt)
    long.pour(rows)
    return damaged


def _wide(table: _Table, rows: Rows, cells: _Cells) -> list[int]:
    """Pour a table with one step a line into `rows`; the result is the damaged lines."""
    header, step = table.header, table.step
    lower = [name.lower() for name in header]
    time = next((lower.index(name) for name in _TIMES if name in lower), None)
    split = {
        column: name.rpartition(" - ")
        for column, name in enumerate(header)
        if column != step and lower[column] not in _NOT_METRICS and not name.endswith(_EXTREMES)
    }
    owners = [owner for owner, dash, name in split.values() if dash and re.search(r"\w", owner)]
    chosen = table.choose(owners) if owners else None
    owner = None
    at = {name: column for column, name in reversed(list(enumerate(lower)))}
    if not owners:
        owner = table.owner({k: v for k, v in at.items() if k in _RUN_NAMES})
    names = {
        column: natural(name)
        for column, (run, dash, name) in split.items()
        if name and (not dash or run == chosen) and (owner is None or column != owner[0])
    }
    damaged = []
    for number, row in table.of(owner):
        try:
            count = as_step(row[step])
        except (ValueError, IndexError):
            damaged.append(number)
            continue
        found = {
            name: cells.number(row[column], name, number)
            for column, name in names.items()
            if column < len(row)
        }
        stamp = as_time(row[time]) if time is not None and time < len(row) else float("nan")
        values = {name: value for name, value in found.items() if value is not None}
        if values:
            rows.add_step(count, values, stamp)
    return damaged
