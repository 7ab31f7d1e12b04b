"""Storage of run folders: writable, mounted in the containers, with enough room."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from reprise.cluster.site import Site
from reprise.core.files import nearest_existing, try_lock
from reprise.core.findings import Report
from reprise.flows.train.job import TrainJob
from reprise.recipe.plan.disk import CheckpointDisk, checkpoint_disk
from reprise.recipe.plan.plan import setup_of
from reprise.recipe.rules.base import Undecided
from reprise.runs.state.pulse import QUIET_SECONDS

__all__ = ["check_disk", "check_storage"]

_GIB = 2**30
_LEAST_FREE = 1 * _GIB


def check_storage(
    report: Report, runs: Path, site: Site | None, storage: str | None = None
) -> None:
    """Whether `runs` can be written; `site` is that of a cluster that is started here.

    `storage` is the nodes' folder for what the job writes, where that is not `runs`.
    """
    rule = "train-storage"
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=runs, prefix=".write-test-") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            if try_lock(file.fileno()) is None:
                report.warn("train-storage.no-locks", str(runs), minutes=round(QUIET_SECONDS / 60))
    except OSError as error:
        reason = error.strerror or error
        report.failed("train-storage.not-writable", str(runs), reason=reason)
    if site is not None and site.container.image is not None:
        _mounted(report, Path(storage) if storage else runs, site)
    report.settle(rule)


def _mounted(report: Report, runs: Path, site: Site) -> None:
    """Whether the containers on the nodes see the folder under its own name."""
    mounts = [path.split(":")[-1] for path in site.container.mounts]
    inside = [*mounts, *site.paths.shared().values()]
    if any(runs.is_relative_to(path) for path in inside):
        return
    mounted = ", ".join(inside) or "its paths"
    report.failed("train-storage.not-mounted", str(runs), mounts=mounted)


def check_disk(report: Report, runs: Path, task: TrainJob, elsewhere: bool) -> None:
    """Whether the run's checkpoints and logs fit; `elsewhere`: checkpoints are on other storage."""
    rule, where = "train-disk", str(runs)
    free = shutil.disk_usage(nearest_existing(runs)).free
    disk = None if elsewhere else _checkpoints(report, where, task)
    size = disk.each.total if disk is not None and disk.written != 0 else 0
    if free < size + _LEAST_FREE:
        report.failed("train-disk.full", where, free=free / _GIB, need=(size + _LEAST_FREE) / _GIB)
    elif disk is not None and size:
        _later(report, where, task, disk, free - _LEAST_FREE)
    report.settle(rule)


def _later(report: Report, where: str, task: TrainJob, disk: CheckpointDisk, free: int) -> None:
    """Whether all checkpoints that stay at the same time fit into `free` bytes."""
    size = disk.each.total
    fit = free // size
    if disk.peak is None:
        report.unknown("train-disk.steps-unknown", where, size=size / _GIB, fit=fit)
    elif disk.peak > fit:
        fewer = fit >= 2 and not setup_of(task.loaded).critic
        text = "train-disk.keep-fewer" if fewer else "train-disk.full-later"
        found = {"free": free / _GIB, "size": size / _GIB, "fit": fit, "peak": disk.peak}
        report.failed(text, where, step=(fit + 1) * task.save_freq, **found)


def _checkpoints(report: Report, where: str, task: TrainJob) -> CheckpointDisk | None:
    """What the checkpoints need; unknown (and said so) where the model's shape is."""
    if task.save_freq <= 0:
        return None
    try:
        return checkpoint_disk(setup_of(task.loaded))
    except Undecided as undecided:
        report.unknown("train-disk.size-unknown", where, reason=undecided, name=task.name)
        return None
