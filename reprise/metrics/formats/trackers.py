"""Folders of trackers, read with the trackers' own libraries: TensorBoard, W&B, MLflow, SwanLab."""

from __future__ import annotations

import importlib
import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from reprise.core.errors import CannotTell
from reprise.core.findings import Severity, make_finding
from reprise.metrics.formats.lines import as_number, as_step, as_time, whole_lines
from reprise.metrics.formats.names import natural
from reprise.metrics.rows import LongRows, Rows

__all__ = ["EVENTS", "read_events", "read_mlflow", "read_swanlab", "read_wandb"]

EVENTS = "*tfevents*"
_BLOCK, _HEAD = 32768, 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def _library(module: str, extra: str, path: Path) -> ModuleType:
    """An optional library; raises CannotTell that names the extra which has it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        library = module.partition(".")[0]
        raise CannotTell(
            "metrics-library.missing", str(path), library=library, extra=extra
        ) from None


def read_events(path: Path, rows: Rows) -> None:
    """One event file of TensorBoard. Raises CannotTell without its library."""
    loader = _library("tensorboard.backend.event_processing.event_file_loader", "tensorboard", path)
    util = _library("tensorboard.util.tensor_util", "tensorboard", path)
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    times: dict[int, float] = {}
    for event in loader.EventFileLoader(str(path)).Load():
        for item in event.summary.value:
            if item.HasField("simple_value"):
                value = float(item.simple_value)
            elif item.HasField("tensor") and item.metadata.plugin_data.plugin_name == "scalars":
                value = float(util.make_ndarray(item.tensor))
            else:
                continue
            step = int(event.step)
            if step in times and natural(item.tag) in steps[step]:
                # The same writer logged a step again: what came before is one row.
                rows.add_step(step, steps.pop(step), times.pop(step))
            steps[step][natural(item.tag)] = value
            times[step] = float(event.wall_time)
    for step, values in steps.items():
        rows.add_step(step, values, times[step])


def _framed(path: Path, magic: bytes, rows: Rows) -> Iterator[bytes]:
    """The records of a log in LevelDB's format, as W&B and SwanLab write it.

    github.com/google/leveldb/blob/main/doc/log_format.md; a header of 7 bytes comes first. A file
    whose writer was interrupted ends with part of a record, which is left out with a finding.
    """
    data = b"".join(whole_lines(path, rows))
    if not data.startswith(magic):
        return
    at, parts, cut = _HEAD, b"", False
    while at + _HEAD <= len(data):
        room = _BLOCK - at % _BLOCK
        if room < _HEAD:
            at += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        body = data[at + _HEAD : at + _HEAD + length]
        at += _HEAD + length
        if len(body) < length or kind not in (_FULL, _FIRST, _MIDDLE, _LAST):
            cut = True
            break
        parts = body if kind in (_FULL, _FIRST) else parts + body
        if kind in (_FULL, _LAST):
            yield parts
            parts = b""
    if cut or parts:
        rows.findings.append(
            make_finding(Severity.WARNING, "metrics-log.cut", str(path), None, "", {"bytes": at})
        )


def read_wandb(path: Path, rows: Rows) -> None:
    """A run that W&B logged offline (run-*.wandb). Raises CannotTell without its library."""
    proto = _library("wandb.proto.wandb_internal_pb2", "wandb", path)
    for data in _framed(path, b":W&B", rows):
        record = proto.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") != "history":
            continue
        values: dict[str, Any] = {}
        for item in record.history.item:
            key = item.key or ".".join(item.nested_key)
            values[key] = json.loads(item.value_json)
        step = values.pop("_step", record.history.step.num)
        time = as_time(values.pop("_timestamp", None))
        # A user may log a step of their own beside W&B's count of calls.
        step = values.get("training/global_step", step)
        pairs = ((natural(key), as_number(value)) for key, value in values.items())
        named = {k: v for k, v in pairs if v is not None and not k.startswith("_")}
        if named:
            rows.add_step(as_step(step), named, time)


def read_swanlab(path: Path, rows: Rows) -> None:
    """A run that SwanLab logged offline (run-*.swanlab). Raises CannotTell without its library."""
    proto = _library("swanlab.proto.swanlab.record.v1.record_pb2", "swanlab", path)
    long = LongRows()
    for data in _framed(path, b":SWL", rows):
        record = proto.Record()
        record.ParseFromString(data)
        if record.HasField("scalar"):
            scalar = record.scalar
            stamp = scalar.timestamp.seconds + scalar.timestamp.nanos / 1e9
            value = float(scalar.value.number)
            long.add(natural(scalar.key), int(scalar.step), value, time=stamp or float("nan"))
    long.pour(rows)


def read_mlflow(folder: Path, rows: Rows) -> None:
    """A run in MLflow's file store: metrics/<name>, lines `time value step` (milliseconds)."""
    long = LongRows()
    root = folder / "metrics"
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        name = natural(file.relative_to(root).as_posix())
        damaged = []
        for number, line in enumerate(whole_lines(file, rows), start=1):
            try:
                time, value, step = line.split()
                long.add(name, as_step(step.decode()), float(value), time=as_time(time.decode()))
            except ValueError:
                damaged.append(number)
        rows.damaged(file, damaged, "lines are not `time value step` and were")
    long.pour(rows)
