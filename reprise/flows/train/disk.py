"""Storage of run folders: writable, mounted in the containers, with enough room."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from reprise.cluster.site import Site
from reprise.core.files import nearest_existing
from reprise.core.findings import Report
from reprise.flows.train.job import TrainJob
from reprise.recipe.plan.memory import checkpoint_bytes
from reprise.recipe.plan.plan import setup_of
from reprise.recipe.rules.base import Undecided

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
    """Whether a checkpoint and the logs fit; `elsewhere`: checkpoints are on other storage."""
    rule = "train-disk"
    folder = nearest_existing(runs)
    free = shutil.disk_usage(folder).free
    try:
        size = int(checkpoint_bytes(setup_of(task.loaded)).total) if task.save_freq > 0 else 0
    except Undecided:
        size = 0
    if elsewhere:
        size = 0  # the doctor checks that folder on the nodes
    need = size + _LEAST_FREE
    if free < need:
        report.failed("train-disk.full", str(runs), free=free / _GIB, need=need / _GIB)
    elif free < 2 * size + _LEAST_FREE:
        report.warn("train-disk.one-fits", str(runs), free=free / _GIB, size=size / _GIB)
    report.settle(rule)
