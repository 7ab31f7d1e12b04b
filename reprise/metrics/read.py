"""Which reader a path needs: a run folder, one metrics file, or a folder of files."""

from __future__ import annotations

import re
from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.metrics.formats.delimited import read_delimited
from reprise.metrics.formats.lines import (
    open_file,
    read_console,
    read_json_document,
    read_jsonl,
)
from reprise.metrics.formats.trackers import (
    EVENTS,
    read_events,
    read_mlflow,
    read_swanlab,
    read_wandb,
)
from reprise.metrics.rows import Rows
from reprise.metrics.table import MetricTable

__all__ = ["read_run"]

_ATTEMPT_FILE = re.compile(r"attempt-(\d+)\.(?:jsonl|csv)(?:\.gz)?$")
_TABLES = (".csv", ".tsv", ".tab")
# Files of a folder that can be metrics; anything else in it is not read.
_KNOWN = ("*.jsonl", "*.csv", "*.tsv", "*.log", "*.out", "trainer_state.json", "*.txt")


def read_run(path: Path, series: str | None = None) -> MetricTable:
    """Read a run folder (`metrics/attempt-N.jsonl`), a metrics file or a folder of files.

    A file is taken by its name: `.jsonl`, `.json`, `.csv`, `.tsv`, event files of TensorBoard,
    `.wandb`, `.swanlab`; anything else is a console log (or JSON lines, when it begins with a
    brace); `.gz` may follow. `series` names one run of an export that has several. Raises
    OperatorError when there is nothing to read; OSError from the file system.
    """
    rows = Rows(run=path.name if path.is_dir() else f"{path.absolute().parent.name}/{path.name}")
    for number, file in _sources(path):
        rows.new_attempt(number)
        try:
            _read_file(file, rows, series)
        except IsADirectoryError:
            raise OperatorError("metrics-missing.no-attempts", str(file)) from None
    if not len(rows):
        raise OperatorError("metrics-empty.format", str(path))
    return rows.table(str(path))


def _sources(path: Path) -> list[tuple[int, Path]]:
    """The files of a run with the numbers of their attempts (0: not numbered)."""
    if not path.exists():
        raise OperatorError("metrics-missing.path", str(path))
    if not path.is_dir():
        return [(1, path)]
    found = []
    for file in (path / "metrics").glob("attempt-*"):
        if match := _ATTEMPT_FILE.search(file.name):
            found.append((int(match[1]), file))
    if found:
        return sorted(found)
    if (path / "run.json").is_file() or not (others := _others(path)):
        raise OperatorError("metrics-missing.no-attempts", str(path / "metrics"))
    return [(0, file) for file in others]


def _others(folder: Path) -> list[Path]:
    """Metrics files of a folder that another tool wrote, of one kind, oldest first."""
    if (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir():
        return [folder]
    for pattern in (EVENTS, "*.wandb", "*.swanlab"):
        if files := sorted(file for file in folder.rglob(pattern) if not _linked(file, folder)):
            _one_run(folder, files)
            return files
    runs = sorted(file.parent for file in folder.glob("*/meta.yaml"))
    runs = [run for run in runs if (run / "metrics").is_dir()]
    runs += sorted(
        m.parent for m in folder.glob("*/*/meta.yaml") if (m.parent / "metrics").is_dir()
    )
    if runs:
        _one_run(folder, runs)
        return runs
    for pattern in _KNOWN:
        if files := sorted(folder.glob(pattern)) + sorted(folder.glob(f"{pattern}.gz")):
            return files
    return []


def _linked(file: Path, folder: Path) -> bool:
    """Whether a file is reached through a link, as W&B's latest-run."""
    return any(part.is_symlink() for part in (file, *file.parents) if part.is_relative_to(folder))


def _one_run(folder: Path, files: list[Path]) -> None:
    """Refuse files of several runs: each tracker has a folder a run."""
    homes = sorted({file if file.is_dir() else file.parent for file in files})
    if len(homes) > 1:
        shown = ", ".join(str(home.relative_to(folder)) for home in homes[:6])
        shown += f" and {len(homes) - 6} more" if len(homes) > 6 else ""
        known = {"count": len(homes), "runs": shown, "first": homes[0]}
        raise OperatorError("metrics-folder.several", str(folder), **known)


def _read_file(path: Path, rows: Rows, series: str | None) -> None:
    if path.is_dir():
        read_mlflow(path, rows)
        return
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix in _TABLES:
        read_delimited(path, rows, series)
    elif "tfevents" in path.name:
        read_events(path, rows)
    elif suffix == ".wandb":
        read_wandb(path, rows)
    elif suffix == ".swanlab":
        read_swanlab(path, rows)
    elif suffix == ".json" and read_json_document(path, rows):
        return
    elif suffix == ".jsonl" or _begins(path):
        read_jsonl(path, rows)
    else:
        read_console(path, rows)


def _begins(path: Path) -> bool:
    """Whether a file begins with a brace: JSON lines."""
    try:
        with open_file(path) as file:
            return file.read(4096).lstrip().startswith(b"{")
    except (EOFError, OSError):
        return False  # The reader of lines reports what is wrong with the file.
