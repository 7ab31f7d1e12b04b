"""May a run be taken up again, and is it still the run that was started?"""

from __future__ import annotations

import shlex
import socket
from collections.abc import Mapping
from typing import Any

from reprise.errors import OperatorError
from reprise.findings import Report
from reprise.pipeline_train_job import Task
from reprise.project import Project
from reprise.run.folder import RunFolder
from reprise.run.processes import alive

__all__ = ["may_resume", "unchanged"]

RULE = "train-changed"


def unchanged(report: Report, project: Project, folder: RunFolder, task: Task) -> None:
    """A later attempt with another recipe, lock or data set would continue another run's curve."""
    storage = str(folder.read()["storage"])
    pairs = (
        ("config.yaml", task.config(folder.name, storage), "the recipe, as composed now,"),
        ("versions.lock", project.lock.read_text(encoding="utf-8"), "the project's lock"),
    )
    for name, now, what in pairs:
        path = folder.path / name
        try:
            then = path.read_text(encoding="utf-8")
        except OSError as error:
            report.unknown(RULE, str(path), f"cannot be read: {error.strerror}", "look at the run")
            continue
        if then == now:
            continue
        lines = zip(then.splitlines(), now.splitlines(), strict=False)
        first = next((number for number, (a, b) in enumerate(lines, 1) if a != b), 0)
        report.failed(
            RULE,
            f"{path}:{first}" if first else str(path),
            f"{what} is not what the run was started with",
            f"restore it (git checkout), start a new run, or: --force {RULE}",
        )
    _same_rows(report, folder.read().get("rows"), task)
    report.settle(RULE)


def _same_rows(report: Report, then: int | None, task: Task) -> None:
    """verl's data.pt holds how far an order of samples was followed, not of how many.

    A sampler of another length deals out another order without a word.
    """
    now = task.loaded.known.rows
    if then is None or now is None or then == now:
        return
    report.failed(
        RULE,
        str((task.values.get("data") or {}).get("train_files")),
        f"has {now} rows, and had {then} when the run was started: data.pt of its checkpoints "
        "goes on in the order of the other data",
        f"restore the file, start a new run, or: --force {RULE}",
    )


def may_resume(folder: RunFolder, facts: Mapping[str, Any]) -> None:
    """Raises OperatorError for a run that is finished, another command's, or supervised now."""
    if facts.get("state") == "finished":
        raise OperatorError(
            "train-resume",
            folder.name,
            "the run is finished: there is nothing to take up",
            f"judge it: make reproduce MODEL={facts.get('model') or folder.path.parent.name} "
            f"RUN={shlex.quote(str(folder.path))}",
        )
    if "place" not in facts:
        raise OperatorError(
            "train-resume",
            folder.name,
            "the run was not started by `reprise train`",
            f"start one: reprise train {facts.get('model')}",
        )
    watcher = facts.get("watcher")
    here = watcher and watcher.get("host") == socket.gethostname()
    if watcher and here and alive(int(watcher["pid"]), float(watcher["created"])):
        raise OperatorError(
            "train-resume",
            folder.name,
            f"process {watcher['pid']} on this machine supervises it already",
            f"only look at it: reprise status {folder.name}",
        )
