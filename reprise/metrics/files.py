"""The formats: verl's JSON lines, verl's console lines, CSV long and wide."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import orjson

from reprise.core.errors import OperatorError
from reprise.metrics.rows import Rows
from reprise.metrics.table import MetricTable

__all__ = ["parse_console_line", "parse_json_line", "read_run"]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# A line of verl's LocalLogger; Ray or a progress bar may stand before it on the same line.
_STEP_LINE = re.compile(r"(?:^|[\s)\]])step:(\d+) - ([^\s:]\S*:\S.*)$")
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
# numpy 2 prints its scalars with their type: np.float64(0.5).
_SCALAR = re.compile(r"(?:np|numpy)\.\w+\((.*)\)$")
_ATTEMPT_FILE = re.compile(r"attempt-(\d+)\.(?:jsonl|csv)$")
_LAST_STEP = 10**12
_STEP_COLUMNS = ("step", "_step", "global_step", "training/global_step")


def read_run(path: Path) -> MetricTable:
    """Read a run folder (`metrics/attempt-N.jsonl`) or one metrics file, attempts merged.

    A file is taken by its name: `.jsonl`, `.csv`, anything else is a console log (or JSON lines,
    when it begins with a brace); `.gz` may follow. Raises OperatorError when there is nothing
    to read; OSError as the file system gives it.
    """
    rows = Rows(run=path.name if path.is_dir() else f"{path.absolute().parent.name}/{path.name}")
    for number, file in _sources(path):
        rows.new_attempt(number)
        _read_file(file, rows)
    if not rows.rows:
        raise OperatorError("metrics-empty.metric-found-expected", str(path))
    return rows.table(str(path))


def _sources(path: Path) -> list[tuple[int, Path]]:
    if not path.exists():
        raise OperatorError("metrics-missing.such-file-folder", str(path))
    if not path.is_dir():
        return [(1, path)]
    found = []
    for file in (path / "metrics").glob("attempt-*"):
        if match := _ATTEMPT_FILE.search(file.name):
            found.append((int(match[1]), file))
    if not found:
        raise OperatorError("metrics-missing.attempt-n-jsonl", str(path / "metrics"))
    return sorted(found)


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _read_file(path: Path, rows: Rows) -> None:
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix == ".csv":
        _read_csv(path, rows)
        return
    with _open(path) as file:
        braces = file.read(4096).lstrip().startswith(b"{")
    if suffix == ".jsonl" or braces:
        _read_jsonl(path, rows)
    else:
        _read_console(path, rows)


def _step(value: float | str) -> int:
    """A step as it was written; raises ValueError for what no run counts to."""
    number = float(value)
    if not 0 <= number <= _LAST_STEP or number != int(number):
        raise ValueError(f"no step: {value}")
    return int(number)


def _number(value: object) -> float | None:
    """A logged value as a float; None when it is no number. orjson writes NaN as null."""
    if value is None:
        return float("nan")
    if isinstance(value, int | float | str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def _read_jsonl(path: Path, rows: Rows) -> None:
    damaged: list[int] = []
    with _open(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            record = parse_json_line(line)
            if record is None:
                damaged.append(number)
            else:
                rows.add_step(*record)
    rows.damaged(path, damaged, "lines are no record {step, data} and were")


def parse_json_line(line: bytes) -> tuple[int, dict[str, float]] | None:
    """Parse one line of verl's `file` logger or a tracker's: (step, metrics); None if it is none.

    NaN and Infinity are numbers here, as Python writes them.
    """
    try:
        item = orjson.loads(line)
    except orjson.JSONDecodeError:
        try:
            item = json.loads(line)  # Python's own writer puts NaN and Infinity as bare words
        except ValueError:
            return None
    if not isinstance(item, dict):
        return None
    step = next((item[key] for key in _STEP_COLUMNS if key in item), None)
    data = item.get("data", item)
    if not isinstance(step, int | float) or not isinstance(data, dict):
        return None
    try:
        count = _step(step)
    except (ValueError, OverflowError):
        return None
    pairs = ((key, _number(value)) for key, value in data.items() if key not in _STEP_COLUMNS)
    return count, {key: value for key, value in pairs if value is not None}


def parse_console_line(line: str) -> tuple[int, dict[str, float] | None] | None:
    """Parse one line of verl's console logger, `step:12 - key:value - key:value`.

    Returns None when the line is no such line, and (step, None) when it is one that was cut or
    mixed with another writer's text. verl: utils/logger/aggregate_logger.py.
    """
    match = _STEP_LINE.search(_REPEATED.sub("", _ANSI.sub("", line)).rstrip())
    if match is None or int(match[1]) > _LAST_STEP:
        return None
    values: dict[str, float] = {}
    for item in match[2].split(" - "):
        key, colon, text = item.rpartition(":")
        scalar = _SCALAR.match(text)
        value = _number({"True": "1", "False": "0"}.get(text, scalar[1] if scalar else text))
        if not colon or value is None:
            return int(match[1]), None
        values[key] = value
    return int(match[1]), values


def _read_console(path: Path, rows: Rows) -> None:
    damaged: list[int] = []
    with _open(path) as file:
        for number, raw in enumerate(file, start=1):
            text = raw.decode(errors="replace")
            for part in text.split("\r"):
                parsed = parse_console_line(part)
                if parsed is None:
                    continue
                # Without its line end the last number may lack digits and still read as one.
                if parsed[1] is None or not text.endswith("\n"):
                    damaged.append(number)
                else:
                    rows.add_step(parsed[0], parsed[1])
    rows.damaged(path, damaged, "cut or mixed step lines were")


def _read_csv(path: Path, rows: Rows) -> None:
    with _open(path) as file:
        text = file.read().decode("utf-8-sig", errors="replace")
    reader = csv.reader(text.splitlines())
    header = [cell.strip() for cell in next(reader, [])]
    lower = [cell.lower() for cell in header]
    step = next((lower.index(name) for name in _STEP_COLUMNS if name in lower), None)
    if step is None:
        raise OperatorError(
            "metrics-header.column-named-step",
            f"{path}:1",
            headers=", ".join(header[:6]) or "an empty line",
        )
    body = ((number, row) for number, row in enumerate(reader, start=2) if row)
    long = "metric" in lower and "value" in lower
    damaged = list((_long_csv if long else _wide_csv)(header, step, body, rows))
    rows.damaged(path, damaged, "rows hold something else than numbers and were")


_Body = Iterable[tuple[int, list[str]]]


def _long_csv(header: list[str], step: int, body: _Body, rows: Rows) -> Iterator[int]:
    lower = [cell.lower() for cell in header]
    metric, value = lower.index("metric"), lower.index("value")
    error = lower.index("uncertainty") if "uncertainty" in lower else None
    attempt = lower.index("attempt") if "attempt" in lower else None
    base = rows.attempt
    for number, row in body:
        try:
            if attempt is not None:
                rows.attempt = base - 1 + int(row[attempt])
            sigma = float(row[error] or "nan") if error is not None else float("nan")
            rows.add(row[metric], _step(row[step]), float(row[value]), sigma)
        except (ValueError, IndexError):
            yield number


def _wide_csv(header: list[str], step: int, body: _Body, rows: Rows) -> Iterator[int]:
    # A tracker's export from its web page names columns "run - metric" and adds __MIN and __MAX.
    names = {
        column: name.split(" - ")[-1]
        for column, name in enumerate(header)
        if column != step and name and not name.endswith(("__MIN", "__MAX"))
    }
    for number, row in body:
        try:
            cells = ((name, row[column].strip()) for column, name in names.items())
            rows.add_step(_step(row[step]), {name: float(cell) for name, cell in cells if cell})
        except (ValueError, IndexError):
            yield number
