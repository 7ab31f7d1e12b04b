"""Where run folders lie: can they be written, do the containers see them, is there room."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from reprise.cluster.site import Site
from reprise.core.findings import Report
from reprise.flows.train.job import Task
from reprise.recipe.plan.memory import checkpoint_bytes
from reprise.recipe.plan.plan import setup_of
from reprise.recipe.rules.base import Undecided

__all__ = ["check_disk", "check_storage"]

_GIB = 2**30
_LEAST_FREE = 1 * _GIB


def check_storage(
    report: Report, runs: Path, site: Site | None, storage: str | None = None
) -> None:
    """Whether `runs` can be written; `site` is that of a cluster that is brought up here.

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
        report.failed(
            rule,
            str(runs),
            f"run folders cannot be written: {error.strerror or error}",
            "RUNS_DIR=FOLDER names another folder, on storage that the nodes share",
        )
    if site is not None and site.container.image is not None:
        _mounted(report, rule, Path(storage) if storage else runs, site)
    report.settle(rule)


def _mounted(report: Report, rule: str, runs: Path, site: Site) -> None:
    """Whether the containers on the nodes see the folder under its own name."""
    mounts = [path.split(":")[-1] for path in site.container.mounts]
    inside = [*mounts, *site.paths.shared().values()]
    if any(runs.is_relative_to(path) for path in inside):
        return
    report.failed(
        rule,
        str(runs),
        "the containers on the nodes do not mount the folder of the runs",
        "name it in container.mounts of the site file, or RUNS_DIR=FOLDER below one of "
        f"{', '.join(inside) or 'its paths'}",
    )


def check_disk(report: Report, runs: Path, task: Task, elsewhere: bool) -> None:
    """Whether a checkpoint and the logs fit; `elsewhere`: checkpoints lie on other storage."""
    rule = "train-disk"
    folder = _existing(runs)
    free = shutil.disk_usage(folder).free
    try:
        size = int(checkpoint_bytes(setup_of(task.loaded)).total) if task.save_freq > 0 else 0
    except Undecided:
        size = 0
    if elsewhere:
        size = 0  # the doctor looks at that folder on the nodes
    need = size + _LEAST_FREE
    if free < need:
        report.failed(
            rule,
            str(runs),
            f"{free / _GIB:.1f} GiB are free; a checkpoint and the logs take {need / _GIB:.1f} GiB",
            "make room, or name another folder: RUNS_DIR=FOLDER",
        )
    elif free < 2 * size + _LEAST_FREE:
        report.warn(
            rule,
            str(runs),
            f"{free / _GIB:.1f} GiB are free: one checkpoint fits ({size / _GIB:.1f} GiB), two do "
            "not, and the last one stays until the next one is whole",
            "make room, or name another folder: RUNS_DIR=FOLDER",
        )
    report.settle(rule)


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    while not path.exists():
        path = path.parent
    return path
