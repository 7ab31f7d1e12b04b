"""Detect this site: a site file and a hostfile to edit, every line with its reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tomlkit

from reprise.cluster.doctor.facts import Address, Facts
from reprise.cluster.doctor.rules_network import INNER
from reprise.cluster.hosts.hostfile import read_hostfile
from reprise.cluster.hosts.names import unfold
from reprise.core.errors import OperatorError
from reprise.core.files import write_text
from reprise.core.findings import Report

__all__ = ["Found", "allocation", "hostfile_text", "site_text", "slurm_allocation", "write_new"]

_PROXIES = ("http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True, slots=True)
class Found:
    """Hosts of a scheduler's allocation, and where they were read."""

    hosts: tuple[str, ...]
    why: str
    slots: int | None = None


def slurm_allocation(environment: Mapping[str, str]) -> Found | None:
    """The nodes of the Slurm job that this process runs in; None outside of one.

    Slots are the GPUs of a node: SLURM_GPUS_ON_NODE, else SLURM_GPUS_PER_NODE (8, or h20:8).
    """
    listed = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST")
    if not listed:
        return None
    texts = (environment.get(name, "") for name in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"))
    counts = [int(count) for text in texts if (count := text.rpartition(":")[2]).isdigit()]
    slots = next((count for count in counts if count > 0), None)
    return Found(tuple(unfold([listed])), "SLURM_JOB_NODELIST", slots)


def allocation(environment: Mapping[str, str], mpi_hostfile: Path) -> Found | None:
    """The node list of SLURM, PBS, Volcano or the Kubernetes MPI operator; else None.

    `mpi_hostfile` is where the MPI operator mounts its hostfile (/etc/mpi/hostfile).
    """
    if (found := slurm_allocation(environment)) is not None:
        return found
    if (named := environment.get("PBS_NODEFILE")) and Path(named).is_file():
        lines = Path(named).read_text(encoding="utf-8").split()
        return Found(tuple(dict.fromkeys(lines)), f"PBS_NODEFILE={named}")
    for name, listed in sorted(environment.items()):
        if re.fullmatch(r"VC_[A-Z0-9_]+_HOSTS", name) and listed:
            return Found(tuple(unfold([listed])), name)
    if mpi_hostfile.is_file():
        _, hostfile = read_hostfile(mpi_hostfile)
        if hostfile is not None:
            return Found(
                tuple(host.name for host in hostfile.hosts),
                str(mpi_hostfile),
                hostfile.hosts[0].slots,
            )
    return None


def hostfile_text(found: Found | None, here: str, slots: int) -> str:
    """A hostfile with the allocation's hosts, or with this machine as an example."""
    count = found.slots or slots if found else slots
    lines = [
        "# One host per line, the first is the head; docs/cluster.md lists every form.",
        f"# slots: GPUs of the host; {count} is "
        + ("from the scheduler" if found and found.slots else "the default of this machine"),
    ]
    if found is None:
        lines += ["# No allocation of a scheduler was found: list your hosts here."]
    else:
        lines += [f"# Hosts: from {found.why}."]
    lines += [f"{name} slots={count}" for name in (found.hosts if found else (here,))]
    return "\n".join(lines) + "\n"


def site_text(facts: Facts, machine: str | None, why: str, python: str) -> str:
    """A site file; settings that were found but are optional are comments.

    `machine` None: unknown. A login node without GPUs does not describe the training hosts.
    """
    lines = [
        f"# Settings of this site, for all recipes; written on {facts.one('hostname')}.",
        "# Lines that start with # are suggestions: remove the # to use them.",
        "",
        f"machine = {_toml(machine)}  # {why}" if machine else f'# machine = "h20"  # {why}',
        "",
        "[paths]",
        f"python = {_toml(python)}  # the interpreter that has Ray, on every node",
        *_mounts(facts),
        "",
        "[network]",
        *_interfaces(facts),
        "",
        "[container]",
        '# image = "verlai/verl@sha256:..."  # without one, Ray runs in paths.python',
        "",
        "[variables]",
        *_variables(facts),
    ]
    return "\n".join(lines) + "\n"


def _mounts(facts: Facts) -> list[str]:
    mounts = [value.split(" ") for value in facts.all("mount")]
    if not mounts:
        return ["# no shared file system is mounted here; keys: data, model, checkpoints, code"]
    lines = []
    for path, kind, *_ in mounts:
        for name in ("data", "model", "checkpoints", "code"):
            text = f"{path.rstrip('/')}/{name}"
            lines.append(f"# {name} = {_toml(text)}  # {path} is a mount of {_word(kind)}")
    return lines


def _interfaces(facts: Facts) -> list[str]:
    speeds = {value.split(" ")[0]: value.split(" ")[2] for value in facts.all("interface")}
    lines = ["# without interface=, each host uses the one that routes to the head"]
    for address in facts.addresses():
        if not address.local and not INNER.match(address.interface):
            note = _interface_note(address, speeds)
            lines.append(f"# interface = {_toml(address.interface)}  # {note}")
    return lines


def _interface_note(address: Address, speeds: Mapping[str, str]) -> str:
    speed = speeds.get(address.interface, "")
    known = f", {int(speed) // 1000} Gbit/s" if speed.isdigit() and int(speed) >= 1000 else ""
    return f"has {address.ip}/{address.prefix}{known}"


def _variables(facts: Facts) -> list[str]:
    environment = facts.environment()
    lines = []
    for name in _PROXIES:
        value = environment.get(name) or environment.get(name.upper())
        if not value:
            continue
        # The probe masks passwords: such a value cannot be used as it is.
        mark = "# " if "***" in value else ""
        lines.append(f"{mark}{name} = {_toml(value)}  # set on this machine")
    return lines or ["# no proxy is set on this machine"]


def _toml(text: str) -> str:
    return tomlkit.string(text).as_string()


def _word(text: str) -> str:
    return re.sub(r"[^\w.-]", "?", text)


def write_new(path: Path, text: str, report: Report) -> bool:
    """Write a new file; an existing one is left as it is, with a note. Whether it was written."""
    if path.exists():
        report.note("init.kept", str(path))
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise OperatorError("init.not-written", str(path), reason=error.strerror) from None
    report.note("init.written", str(path))
    return True
