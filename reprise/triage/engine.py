"""Triage as one call: paths in, a diagnosis out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprise.triage.judge import Question, judge
from reprise.triage.model import Diagnosis
from reprise.triage.patterns import Library, load_library
from reprise.triage.read.events import FileScan
from reprise.triage.read.scan import Scanner
from reprise.triage.read.source import LogFile, find_logs

__all__ = ["Examined", "examine"]


@dataclass(frozen=True, slots=True)
class Examined:
    """A diagnosis with what it rests on: the files, their lines, their bytes."""

    diagnosis: Diagnosis
    library: Library
    files: tuple[LogFile, ...]
    lines: int
    size: int
    unread: tuple[str, ...] = field(default=())


def examine(
    paths: Sequence[Path],
    question: Question | None = None,
    hosts: Mapping[str, str] | None = None,
    extra: Sequence[Path] = (),
    progress: Callable[[LogFile], None] = lambda log: None,
) -> Examined:
    """Read all logs below `paths` and judge them together.

    What cannot be read is listed in `unread`. Raises OperatorError for a faulty pattern file.
    """
    library = load_library(extra)
    scanner = Scanner(library)
    logs, unread = find_logs(paths, hosts or {})
    scans: list[FileScan] = []
    for log in logs:
        progress(log)
        try:
            scans.append(scanner.scan(log))
        except OSError as error:
            unread.append(f"{log.path}: not read: {error.strerror}")
        unread.extend(f"{log.path}: {note}" for note in log.notes)
    diagnosis = judge(scans, library, question or Question())
    dropped = sum(scan.dropped for scan in scans)
    if dropped:
        diagnosis.notes.append(f"{dropped} repeated lines were counted and not read one by one")
    return Examined(
        diagnosis,
        library,
        tuple(scan.log for scan in scans),
        sum(scan.lines for scan in scans),
        sum(scan.log.size for scan in scans),
        tuple(unread),
    )
