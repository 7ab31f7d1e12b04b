"""The model part of the chain: the lock's entries handed to the data room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reprise.data.hub import Hub
from reprise.data.model_check import HERE, Inspection, inspect_here, inspect_hosts, judge
from reprise.data.model_fetch import ModelWanted, copy_model, fetch_model, list_files
from reprise.data.modelscope import ModelScope
from reprise.data.verified import Verified
from reprise.errors import OperatorError
from reprise.findings import Report
from reprise.lock.model import Model
from reprise.lock.read import read_lock
from reprise.project import Project

__all__ = ["ModelRequest", "Origin", "check_model", "fetch_locked_model"]

Origin = Literal["hub", "modelscope"]
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Which locked model, into which folder, and from where.

    `revision` is for ModelScope, whose revisions are not the hub's.
    """

    name: str
    folder: Path
    origin: Origin = "hub"
    mirror: str | None = None
    local: Path | None = None
    revision: str | None = None


def _entry(project: Project, name: str) -> Model | None:
    models = read_lock(project.lock).model
    return models.get(name.removeprefix("model."))


def _wanted(project: Project, name: str) -> ModelWanted:
    entry = _entry(project, name)
    if entry is None:
        known = ", ".join(read_lock(project.lock).model)
        raise OperatorError("lock-entry", name, "is no model of the lock", f"one of: {known}")
    if entry.revision is None:
        raise OperatorError(
            "data-unpinned",
            f"model.{name}",
            "the lock has no revision for it",
            f"reprise lock update {name} --to REVISION",
        )
    return ModelWanted(name, entry.repo, entry.revision, entry.config_sha256, entry.index_sha256)


def fetch_locked_model(
    project: Project, request: ModelRequest, progress: Progress | None = None
) -> Report:
    """`reprise model fetch`: the files, then the check of what is there."""
    report = Report("model fetch")
    wanted = _wanted(project, request.name)
    folder = request.folder.absolute()
    if request.local is not None:
        copy_model(request.local, wanted, folder, _ticker(progress, wanted.name, None))
    else:
        source: Hub | ModelScope = (
            ModelScope(request.mirror) if request.origin == "modelscope" else Hub(request.mirror)
        )
        files = list_files(source, wanted, request.revision)
        total = sum(remote.size or 0 for remote in files.values())
        store = Verified(project.cache / "verified.json")
        ticker = _ticker(progress, wanted.name, total)
        for error in fetch_model(files, wanted, folder, store, ticker):
            report.absorb(error.report("model fetch"))
        report.data |= {"files": len(files), "bytes": total}
    report.settle("model-fetch")
    judge(report, {HERE: inspect_here(folder)}, folder, wanted.config_sha256, wanted.index_sha256)
    report.data["folder"] = str(folder)
    return report


def _ticker(
    progress: Progress | None, name: str, total: int | None
) -> Callable[[int], None] | None:
    return None if progress is None else lambda count: progress(f"fetch {name}", count, total)


def check_model(
    project: Project,
    folder: Path,
    name: str | None = None,
    hosts: Sequence[str] = (),
    ssh_config: Path | None = None,
) -> Report:
    """`reprise model check`: a folder here or on hosts, against lock entry `name` if given."""
    report = Report("model check")
    wanted = _wanted(project, name) if name else None
    found: dict[str, Inspection] = (
        inspect_hosts(hosts, folder, ssh_config) if hosts else {HERE: inspect_here(folder)}
    )
    judge(
        report,
        found,
        folder,
        wanted.config_sha256 if wanted else None,
        wanted.index_sha256 if wanted else None,
    )
    return report
