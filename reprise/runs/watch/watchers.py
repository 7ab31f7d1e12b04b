"""Alarms on what surrounds a run: silence, what it waits for, disks that fill."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from reprise.core.findings import Finding, Severity

__all__ = ["SILENCE_FACTOR", "disk", "disk_lines", "disks", "silence", "silent"]

SILENCE_FACTOR = 5.0
"""No step for this many times the median step is an alarm: a step with validation and checkpoint
takes two to three times as long as one without."""
LEAST_SILENCE = 60.0
FIRST_STEP_SECONDS = 1800.0
"""Before the first step: 598 GB of weights are read and 16 engines started in less."""
PLACED_SECONDS = 120.0
"""After so long a placement group that is not placed, or a dead node, is told of at once."""
_GIB = 2**30
_LEAST_FREE = 1 * _GIB
_LEAST_SHARE = 0.01
_AMPLE = 50 * _GIB
"""So much is room for logs on any file system: a hundredth of ten petabytes is not nearly full."""


def silent(since: float, step_seconds: float | None) -> bool:
    """Whether `since` seconds without a step are too many; `step_seconds` None: none came yet."""
    if step_seconds is None:
        return since > FIRST_STEP_SECONDS
    return since > max(SILENCE_FACTOR * step_seconds, LEAST_SILENCE)


def silence(
    run: str, step: int, since: float, step_seconds: float | None, waits: Iterable[str] | None
) -> Finding:
    """The alarm that no step comes, with what the cluster waits for; None: it was not asked."""
    where = f"{run}@{step}"
    usual = "" if step_seconds is None else f", {since / step_seconds:.0f} times the median step"
    waiting = "; ".join(waits or ())
    text = f"no step for {since:.0f} s{usual}; "
    text += f"the cluster waits: {waiting}" if waiting else "nothing is pending"
    if waits is None:
        text = f"no step for {since:.0f} s{usual}; the cluster could not be asked why"
    fix = f"read the log: reprise logs {run}; end the run: reprise stop {run}"
    return Finding("run-alarm-silence", Severity.WARNING, where, text, fix)


def disk(path: Path, total: int, free: int, checkpoint: int) -> Finding | None:
    """The alarm for a file system of `total` bytes; `checkpoint`: bytes of the newest one, or 0."""
    free_text = f"{free / _GIB:.1f} of {total / _GIB:.0f} GiB are free"
    fix = f"free space on {path}, or set trainer.max_actor_ckpt_to_keep for the next attempt"
    rule = "run-alarm-disk"
    if free < max(_LEAST_FREE, min(_LEAST_SHARE * total, _AMPLE)):
        return Finding(rule, Severity.ERROR, str(path), f"nearly full: {free_text}", fix)
    if free < checkpoint:
        text = f"{free_text}, and the last checkpoint has {checkpoint / _GIB:.1f} GiB"
        return Finding(rule, Severity.WARNING, str(path), f"{text}: the next will not fit", fix)
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
    text = lines[0].strip()
    if len(lines) > 1:
        text += f" ({len(lines)} such lines)"
    fix = "free space on that host: old sessions below Ray's temp dir, old checkpoints"
    return Finding("run-alarm-disk", Severity.WARNING, str(log), text, fix)
