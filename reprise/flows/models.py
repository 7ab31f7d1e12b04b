"""Fetch and check the locked models."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reprise.cluster.answer import Answer, AnswerKind
from reprise.cluster.hosts.hostfile import Host, named_hosts, read_hostfile
from reprise.cluster.site import SshSettings, load_site
from reprise.cluster.ssh import Ssh, login_words
from reprise.cluster.unreached import why
from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.progress import task
from reprise.core.project import Project
from reprise.hub.huggingface import Hub, retries_told
from reprise.hub.modelscope import ModelScope
from reprise.hub.verified import Verified
from reprise.lock.model import Model
from reprise.lock.read import read_lock
from reprise.models.check import (
    HERE,
    Inspection,
    Unseen,
    inspect_here,
    inspection_of,
    inspection_script,
    judge,
)
from reprise.models.fetch import ModelWanted, copy_model, fetch_model, list_files, remember_folder

__all__ = ["ModelRequest", "Origin", "Where", "check_model", "fetch_locked_model"]

Origin = Literal["hub", "modelscope"]
Progress = Callable[[str, int, int | None], None]
_SECONDS = 900.0
"""How long one host may take: headers and sizes of some hundred shards on slow storage."""


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
        raise OperatorError("lock-entry.unknown-model", name, known=known)
    if entry.missing:
        raise OperatorError("data-unpinned.no-revision", f"model.{name}", name=name)
    return ModelWanted(
        name,
        entry.repo or "",
        entry.revision or "",
        entry.config_sha256,
        entry.index_sha256,
        entry.files,
    )


def fetch_locked_model(
    project: Project,
    request: ModelRequest,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """`reprise model fetch`: the files, then the check of what is there."""
    report = Report("model fetch")
    wanted = _wanted(project, request.name)
    _one_source(request)
    folder = request.folder.absolute()
    if request.local is not None:
        copy_model(request.local, wanted, folder, _ticker(progress, wanted.name, None))
    elif not wanted.repo:
        raise OperatorError("model-source.own-folder", f"model.{request.name}", name=request.name)
    else:
        source: Hub | ModelScope = (
            ModelScope(request.mirror) if request.origin == "modelscope" else Hub(request.mirror)
        )
        with retries_told(say):
            files = list_files(source, wanted, request.revision)
            total = sum(remote.size or 0 for remote in files.values())
            store = Verified(project.cache / "verified.json")
            ticker = _ticker(progress, wanted.name, total)
            errors = fetch_model(files, wanted, folder, store, ticker)
        for error in errors:
            report.absorb(error.report("model fetch"))
        report.data |= {"files": len(files), "bytes": total}
    if not report.checks:
        report.passed("model-fetch")
    judge(
        report,
        {HERE: inspect_here(folder)},
        folder,
        wanted.config_sha256,
        wanted.index_sha256,
        project.rehearsal_python,
    )
    report.data["folder"] = str(folder)
    if not list(report.errors()):
        remember_folder(project.root, wanted.name, folder)
    return report


def _one_source(request: ModelRequest) -> None:
    """Refuse options without effect: a server with a folder, a revision that is locked."""
    if request.local is not None:
        servers = {"--mirror": request.mirror, "--modelscope": request.origin == "modelscope",
                   "--revision": request.revision}  # fmt: skip
        given = ", ".join(name for name, value in servers.items() if value)
        if given:
            raise OperatorError("model-source.folder-and-server", given)
    elif request.revision and request.origin == "hub":
        raise OperatorError("model-source.revision-locked", "--revision", name=request.name)


def _ticker(
    progress: Progress | None, name: str, total: int | None
) -> Callable[[int], None] | None:
    return None if progress is None else lambda count: progress(f"fetch {name}", count, total)


@dataclass(frozen=True, slots=True)
class Where:
    """The hosts to check: those of a hostfile, or named ones; neither means this machine.

    `ssh_config` replaces the one of the site file.
    """

    hostfile: Path | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    ssh_config: Path | None = None


def check_model(
    project: Project, folder: Path, name: str | None = None, where: Where | None = None
) -> Report:
    """`reprise model check`: a folder here or on hosts, against lock entry `name` if given.

    Nothing is contacted when the hostfile or a name is wrong. If a host cannot be checked, its
    folder is unknown; the findings of other hosts are shown.
    """
    report = Report("model check")
    wanted = _wanted(project, name) if name else None
    hosts = _hosts(report, where or Where())
    if hosts is None:
        return report
    found = _on_hosts(hosts, folder, where) if hosts and where else {HERE: inspect_here(folder)}
    judge(
        report,
        found,
        folder,
        wanted.config_sha256 if wanted else None,
        wanted.index_sha256 if wanted else None,
        project.rehearsal_python,
    )
    if wanted and not hosts and not list(report.errors()):
        remember_folder(project.root, wanted.name, folder)
    return report


def _hosts(report: Report, where: Where) -> Sequence[Host] | None:
    """The hosts to check, empty for this machine; None when the report has the fault."""
    if where.hostfile is not None and where.named:
        raise OperatorError("hosts-select.hostfile-and-host", str(where.hostfile))
    unread: dict[str, object] = {"--include": where.include, "--exclude": where.exclude}
    if not where.named:
        unread["--ssh-config"] = where.ssh_config
    given = ", ".join(name for name, value in unread.items() if value)
    if where.hostfile is None and given:
        raise OperatorError("hosts-select.unused", given)
    if where.hostfile is None:
        read, chosen = named_hosts(where.named)
    else:
        read, hostfile = read_hostfile(where.hostfile, where.include, where.exclude)
        chosen = hostfile.hosts if hostfile is not None else ()
    if where.hostfile is not None or where.named:
        report.absorb(read)
    return None if list(report.errors()) else chosen


def _on_hosts(hosts: Sequence[Host], folder: Path, where: Where) -> dict[str, Inspection]:
    settings = load_site().ssh
    if where.ssh_config is not None:
        settings = settings.model_copy(update={"config": str(where.ssh_config)})
    script = inspection_script(folder)
    with Ssh(settings) as ssh, task("model check", len(hosts), "hosts") as shown:
        answers = ssh.run(
            [(host, script) for host in hosts],
            _SECONDS,
            lambda answer: shown.advance(1, answer.host),
        )
    return {
        _label(host): _inspection(host, answer, folder, settings)
        for host, answer in zip(hosts, answers, strict=True)
    }


def _label(host: Host) -> str:
    """The host in findings; the port distinguishes two of one name."""
    return f"{host.name}:{host.port}" if host.port else host.name


def _inspection(host: Host, answer: Answer, folder: Path, settings: SshSettings) -> Inspection:
    if answer.ok:
        look = f"{shlex.join(login_words(host, settings))} ls {shlex.quote(str(folder))}"
        return inspection_of(answer.output, answer.said, look)
    if answer.outcome is AnswerKind.NOT_FOUND and answer.reached:
        return Unseen("python3 was not found", "install python3 (3.9 or later) on this host")
    return Unseen(*why(host, answer, settings))
