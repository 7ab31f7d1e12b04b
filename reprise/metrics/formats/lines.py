"""Lines of text: verl's JSON lines, verl's console, and JSON documents of other trackers."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import orjson

from reprise.core.errors import OperatorError
from reprise.core.findings import Severity, make_finding
from reprise.metrics.formats.names import STEP_NAMES, natural
from reprise.metrics.rows import LongRows, Rows

__all__ = [
    "as_number",
    "as_step",
    "open_file",
    "parse_console_line",
    "parse_json_line",
    "read_console",
    "read_json_document",
    "read_jsonl",
    "whole_lines",
]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# A line of verl's LocalLogger; Ray or a progress bar may stand before it on the same line.
_STEP_LINE = re.compile(r"(?:^|[\s)\]])step:(\d+) - ([^\s:]\S*:\S.*)$")
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
# numpy 2 prints its scalars with their type: np.float64(0.5).
_SCALAR = re.compile(r"(?:np|numpy)\.\w+\((.*)\)$")
_LAST_STEP = 10**12
# Seconds since the epoch; trackers also write milliseconds.
_TIMES = ("_timestamp", "timestamp")
_APART = frozenset({*STEP_NAMES, *_TIMES, "_runtime"})
_MILLISECONDS = 1e11


def open_file(path: Path) -> IO[bytes]:
    """A file to read as bytes, decompressed where its name ends in .gz."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def whole_lines(path: Path, rows: Rows) -> Iterator[bytes]:
    """The lines of a file; where a compressed file ends early, those before the end, and a finding.

    Raises OperatorError for a file that is not gzip although its name says so.
    """
    count = 0
    try:
        with open_file(path) as file:
            for line in file:
                count += 1
                yield line
    except gzip.BadGzipFile as error:
        raise OperatorError("metrics-gzip.damaged", str(path), problem=str(error)) from None
    except (EOFError, zlib.error) as error:
        known = {"count": count, "problem": str(error)}
        rows.findings.append(
            make_finding(Severity.WARNING, "metrics-gzip.cut", str(path), None, "", known)
        )


def as_step(value: float | str) -> int:
    """A step as an integer; raises ValueError for a value that is not a valid step."""
    number = float(value)
    if not 0 <= number <= _LAST_STEP or number != int(number):
        raise ValueError(f"not a step: {value}")
    return int(number)


def as_number(value: object) -> float | None:
    """A logged value as a float; None when it is not numeric. orjson writes NaN as null."""
    if value is None:
        return float("nan")
    if isinstance(value, int | float | str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def as_time(value: object) -> float:
    """A time stamp in seconds since the epoch; NaN for anything else."""
    number = as_number(value)
    if number is None or not number > 0:
        return float("nan")
    return number / 1000 if number > _MILLISECONDS else number


def read_jsonl(path: Path, rows: Rows) -> None:
    """JSON lines: verl's {step, data}, or a tracker's flat records with a step."""
    damaged: list[int] = []
    for number, line in enumerate(whole_lines(path, rows), start=1):
        if not line.strip():
            continue
        item = _loads(line)
        record = None if item is None else _record(item)
        if record is None:
            damaged.append(number)
        else:
            rows.add_step(record[0], record[1], record[2])
    rows.damaged(path, damaged, "lines are not a record {step, data} and were")


def parse_json_line(line: bytes) -> tuple[int, dict[str, float]] | None:
    """Parse a line of verl's `file` logger or a tracker: (step, metrics); None for other lines.

    NaN and Infinity are numbers here, as Python writes them.
    """
    item = _loads(line)
    record = None if item is None else _record(item)
    return None if record is None else record[:2]


def _loads(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            return json.loads(text)  # Python's own writer writes NaN and Infinity without quotes
        except ValueError:
            return None


def _record(item: object) -> tuple[int, dict[str, float], float] | None:
    """(step, metrics, time) of one record."""
    if not isinstance(item, dict):
        return None
    step = next((item[key] for key in STEP_NAMES if key in item), None)
    data = item.get("data", item)
    if isinstance(step, bool) or not isinstance(step, int | float) or not isinstance(data, dict):
        return None
    try:
        count = as_step(step)
    except (ValueError, OverflowError):
        return None
    time = next((as_time(item[key]) for key in _TIMES if key in item), float("nan"))
    values: dict[str, float] = {}
    for key, value in data.items():
        # Most values are floats already; a long run has millions.
        number = value if type(value) is float else as_number(value)
        if number is not None and key not in _APART:
            values[natural(key)] = number
    return count, values, time


def read_json_document(path: Path, rows: Rows) -> bool:
    """One JSON document: Hugging Face's trainer_state.json, MLflow's metric history, a list.

    Returns False when the file is none of these (JSON lines, say).
    """
    try:
        with open_file(path) as file:
            document = _loads(file.read())
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return False
    clock = set()
    if isinstance(document, dict):
        if "log_history" in document:
            clock = {"epoch"}  # The Trainer writes it into every record.
        document = document.get("log_history", document.get("metrics"))
    if not isinstance(document, list):
        return False
    long, damaged, taken = LongRows(), 0, 0
    for item in document:
        if isinstance(item, dict) and {"key", "value", "step"} <= item.keys():
            number = as_number(item["value"])
            if number is not None:
                time = as_time(item.get("timestamp"))
                long.add(natural(str(item["key"])), as_step(item["step"]), number, time=time)
                taken += 1
            continue
        record = _record(item)
        if record is None:
            damaged += 1
        else:
            step, values, time = record
            rows.add_step(step, {k: v for k, v in values.items() if k not in clock}, time)
            taken += 1
    long.pour(rows)
    rows.damaged(path, [1] * bool(damaged), f"file with {damaged} items without a step: they were")
    return taken > 0


def parse_console_line(line: str) -> tuple[int, dict[str, float] | None] | None:
    """Parse one line of verl's console logger, `step:12 - key:value - key:value`.

    Returns None for any other line, and (step, None) when it is one that was cut or
    mixed with another writer's text. verl: utils/logger/aggregate_logger.py.
    """
    match = _STEP_LINE.search(_REPEATED.sub("", _ANSI.sub("", line)).rstrip())
    if match is None or int(match[1]) > _LAST_STEP:
        return None
    values: dict[str, float] = {}
    for item in match[2].split(" - "):
        key, colon, text = item.rpartition(":")
        scalar = _SCALAR.match(text)
        value = as_number({"True": "1", "False": "0"}.get(text, scalar[1] if scalar else text))
        if not colon or value is None:
            return int(match[1]), None
        values[key] = value
    return int(match[1]), values


def read_console(path: Path, rows: Rows) -> None:
    """A console log: verl's step lines among anything else."""
    damaged: list[int] = []
    for number, raw in enumerate(whole_lines(path, rows), start=1):
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
