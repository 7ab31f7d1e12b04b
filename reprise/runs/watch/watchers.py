"""Alarms on the surroundings of a run: no steps, pending resources, full disks."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from reprise.core.findings import Finding, Severity, make_finding

__all__ = ["SILENCE_FACTOR", "disk", "disk_lines", "disks", "silence", "silent"]

SILENCE_FACTOR = 5.0
"""No step for this many times the median step is an alarm: a step with validation and checkpoint
takes two to three times as long as one without."""
LEAST_SILENCE = 60.0
FIRST_STEP_SECONDS = 1800.0
"""Before the first step: 598 GB of weights are read and 16 engines started in less."""
PLACED_SECONDS = 120.0
"""After this time a placement group that is not placed, or a dead node, is an alarm."""
_GIB = 2**30
_LEAST_FREE = 1 * _GIB
_LEAST_SHARE = 0.01
_AMPLE = 50 * _GIB
"""Enough for logs on any file system: 1 % of ten petabytes is not nearly full."""


def silent(since: float, step_seconds: float | None) -> bool:
    """Whether `since` seconds without a step are too many; `step_seconds` None: none came yet."""
    if step_seconds is None:
        return since > FIRST_STEP_SECONDS
    return since > max(SILENCE_FACTOR * step_seconds, LEAST_SILENCE)


def silence(
    run: str, step: int, since: float, step_seconds: float | None, waits: Iterable[str] | None
) -> Finding:
    """The alarm that no step comes; `waits`: what the cluster waits for, None if not asked."""
    where = f"{run}@{step}"
    factor = "" if step_seconds is None else f", {since / step_seconds:.0f} times the median step"
    known: dict[str, object] = {"seconds": since, "factor": factor, "run": run}
    if waits is None:
        return _alarm(Severity.WARNING, "run-alarm-silence.not-queried", where, **known)
    if waiting := "; ".join(waits):
        known["waits"] = waiting
        return _alarm(Severity.WARNING, "run-alarm-silence.waiting", where, **known)
    return _alarm(Severity.WARNING, "run-alarm-silence.idle", where, **known)


def _alarm(severity: Severity, text: str, where: str, **values: object) -> Finding:
    return make_finding(severity, text, where, None, "", values)


def disk(path: Path, total: int, free: int, checkpoint: int) -> Finding | None:
    """The alarm for a file system of `total` bytes; `checkpoint`: bytes of the newest one, or 0."""
    where = str(path)
    known: dict[str, object] = {"free": free / _GIB, "total": total / _GIB, "path": path}
    if free < max(_LEAST_FREE, min(_LEAST_SHARE * total, _AMPLE)):
        return _alarm(Severity.ERROR, "run-alarm-disk.nearly-full", where, **known)
    if free < checkpoint:
        known["checkpoint"] = checkpoint / _GIB
        return _alarm(Severity.WARNING, "run-alarm-disk.next-checkpoint", where, **known)
    return None


def disks(paths: Iterable[Path], checkpoint: int) -> Iterator[Finding]:
    """The alarms for the file systems that hold `paths`, each once; those not seen are left out."""
    known = set()
    for path in paths:
        try:
            device = path.stat().st_dev
            usage = shutil.disk_usage(path)
        except OSError:
            continue
        if device not in known:
            known.add(device)
            if (found := disk(path, usage.total, usage.free, checkpoint)) is not None:
                yield found


def disk_lines(log: Path, lines: list[str]) -> Finding:
    """The alarm for Ray's own warnings of a node's full disk: the first line, their number."""
    first, where = lines[0].strip(), str(log)
    if len(lines) == 1:
        return _alarm(Severity.WARNING, "run-alarm-disk.ray-warning", where, line=first)
    name, count = "run-alarm-disk.ray-warnings", len(lines)
    return _alarm(Severity.WARNING, name, where, line=first, count=count)
