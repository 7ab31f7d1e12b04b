"""Check all hosts at once and report the problems."""

from __future__ import annotations

import contextlib
import secrets
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reprise.cluster.answer import Answer
from reprise.cluster.doctor import (
    rules_firmware,
    rules_gpus,
    rules_host,
    rules_mesh,
    rules_network,
    rules_reach,
    rules_software,
)
from reprise.cluster.doctor.context import Context, Expected
from reprise.cluster.doctor.facts import Facts, parse_facts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.site import Site
from reprise.cluster.ssh import Ssh, assignments, run_here
from reprise.core.findings import Report
from reprise.machines.registry import Machine, union

__all__ = ["Look", "Scripts", "diagnose", "head_address", "judge", "look", "look_here", "report_of"]

PROBE_SECONDS = 45.0
"""Limit of one host's probe: the sum of its own limits is lower, but a login may be slow."""

_NAME_SECONDS = 10.0

_RULES: Sequence[Callable[[Context, Marks], None]] = (
    rules_reach.reach,
    rules_reach.clock,
    rules_reach.time_sync,
    rules_reach.system,
    rules_gpus.hardware,
    rules_gpus.accelerators,
    rules_gpus.health,
    rules_firmware.firmware,
    rules_software.versions,
    rules_software.image,
    rules_software.checkouts,
    rules_network.addresses,
    rules_mesh.mesh,
    rules_mesh.packet_size,
    rules_network.proxies,
    rules_network.rdma,
    rules_network.rdma_errors,
    rules_network.ray_address,
    rules_host.ports,
    rules_host.sessions,
    rules_host.shm,
    rules_host.limits,
    rules_host.memory,
    rules_host.temp,
    rules_host.shares,
)


@dataclass(frozen=True, slots=True)
class Scripts:
    """The folder of the scripts that run on nodes (scripts/ of the project)."""

    folder: Path

    def text(self, name: str) -> str:
        """The text of one script."""
        return (self.folder / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Look:
    """What to check: hosts, and what is expected of them."""

    hosts: Sequence[Host]
    machine: Machine
    site: Site
    expected: Expected
    scripts: Scripts
    mark: str = ""
    container: str = ""


def probe_script(what: Look, head_ip: str | None, nonce: str, first: bool) -> str:
    """The probe with its parameters. `first`: this host writes the nonce."""
    site, accelerator = what.site, what.machine.accelerator
    paths = [site.paths.temp, *site.paths.shared().values()]
    ports = {**site.ports.of_head()} if first else site.ports.of_worker()
    values = {
        "P_PYTHON": site.container.python if site.container.image else site.paths.python,
        "P_VERSIONS": what.scripts.text("versions.py"),
        "P_HEAD": head_ip or "",
        "P_PORTS": "\n".join(str(port) for port in ports.values()),
        "P_PATHS": "\n".join(dict.fromkeys(paths)),
        "P_TREES": "\n".join(what.expected.trees),
        "P_SHARED": _shared(site),
        "P_NONCE": nonce,
        "P_STORE": "yes" if first and len(what.hosts) > 1 else "",
        "P_MARK": what.mark,
        "P_ENGINE": site.container.engine,
        "P_IMAGE": site.container.image or "",
        "P_CONTAINER": what.container,
        "P_NAMES": "\n".join(_variables()),
        "P_PIDS": accelerator.pids,
    }
    asked = f"accelerator_facts() {{\n{accelerator.question}}}\n"
    return assignments(values) + asked + what.scripts.text("probe.sh")


def _variables() -> tuple[str, ...]:
    """Variables of any vendor that a login may set."""
    return union(
        lambda vendor: (
            *vendor.interface_variables,
            *vendor.rdma_variables,
            *vendor.gid_variables,
            *vendor.visible_variables,
        )
    )


def _shared(site: Site) -> str:
    return "\n".join(f"{name}={path}" for name, path in site.paths.shared().items())


def head_address(host: Host, ssh: Ssh) -> str | None:
    """The head's address: its ip=, else its name resolved by ssh_config and the resolver.

    None when other hosts cannot use that address.
    """
    if host.ip is not None:
        return host.ip
    first, *rest = ssh.command(host)
    name = host.name
    # A `Match exec` of the user's ssh_config may hang: then the name itself is resolved.
    with contextlib.suppress(subprocess.TimeoutExpired):
        asked = subprocess.run(
            [first, "-G", *rest],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=_NAME_SECONDS,
        )
        for line in asked.stdout.splitlines():
            if line.startswith("hostname "):
                name = line.removeprefix("hostname ").strip()
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    addresses = [str(entry[4][0]) for entry in found]
    return next((a for a in addresses if not a.startswith(("127.", "::1"))), None)


def look(what: Look, ssh: Ssh, on_answer: Callable[[Answer], None] | None = None) -> Context:
    """Probe every host in parallel; then check who sees the head's nonce in shared folders."""
    head_ip = head_address(what.hosts[0], ssh)
    nonce = secrets.token_hex(12)
    jobs = [
        (host, probe_script(what, head_ip, nonce, host is what.hosts[0])) for host in what.hosts
    ]
    shared = bool(what.site.paths.shared()) and len(what.hosts) > 1
    seen: Mapping[str, Mapping[str, str]] = {}
    try:
        answers = ssh.run(jobs, PROBE_SECONDS, on_answer)
        facts = _facts(answers)
        if shared:
            seen = _seen(what, ssh, nonce, facts)
    finally:
        if shared:
            ssh.run([(what.hosts[0], _nonce_script(what, nonce, remove=True))], 15)
    return Context(
        what.hosts,
        {answer.host: answer for answer in answers},
        facts,
        what.machine,
        what.site,
        what.expected,
        head_ip,
        what.mark,
        seen,
    )


def _facts(answers: Sequence[Answer]) -> dict[str, Facts]:
    """Facts of the hosts on which the probe ran, also of an unfinished one."""
    return {
        answer.host: parse_facts(answer.host, answer.output, answer.began, answer.ended)
        for answer in answers
        if answer.reached or "= kernel " in answer.output
    }


def _nonce_script(what: Look, nonce: str, remove: bool) -> str:
    values = {"P_SHARED": _shared(what.site), "P_NONCE": nonce, "P_REMOVE": "yes" if remove else ""}
    return assignments(values) + what.scripts.text("nonce.sh")


def _seen(
    what: Look, ssh: Ssh, nonce: str, facts: Mapping[str, Facts]
) -> dict[str, dict[str, str]]:
    script = _nonce_script(what, nonce, remove=False)
    jobs = [(host, script) for host in what.hosts if host.name in facts]
    return {
        answer.host: parse_facts(answer.host, answer.output).pairs("seen")
        for answer in ssh.run(jobs, 15)
    }


def look_here(what: Look) -> Context:
    """Probe this machine alone, without SSH; `what.hosts` holds one host."""
    host = what.hosts[0]
    answer = run_here(host.name, probe_script(what, host.ip, "0", True), PROBE_SECONDS)
    facts = _facts([answer])
    return Context(
        what.hosts,
        {host.name: answer},
        facts,
        what.machine,
        what.site,
        what.expected,
        host.ip,
        what.mark,
    )


def diagnose(context: Context, command: str = "doctor") -> tuple[Report, Marks]:
    """Apply every rule to every host. The report's findings are folded, the marks are per host."""
    marks = judge(context)
    return report_of(context, marks, command), marks


def judge(context: Context) -> Marks:
    """The result of every rule on every host."""
    marks = Marks()
    for rule in _RULES:
        rule(context, marks)
    return marks


def report_of(context: Context, marks: Marks, command: str = "doctor") -> Report:
    """The marks as one report, with the data of each host."""
    report = marks.report(command)
    report.data["profile"] = context.machine.name
    report.data["hosts"] = {host.name: _host_data(context, host) for host in context.hosts}
    report.data["groups"] = [
        {"hosts": names, "problems": [f"{mark.rule}: {mark.message}" for mark in problems]}
        for names, problems in marks.groups([host.name for host in context.hosts])
    ]
    return report


def _host_data(context: Context, host: Host) -> dict[str, object]:
    answer = context.answers.get(host.name)
    facts = context.facts.get(host.name)
    address = context.address(host)
    data: dict[str, object] = {"outcome": answer.outcome.value if answer else "not-asked"}
    if address is not None:
        data |= {"ip": address.ip, "interface": address.interface}
    if facts is not None:
        data["packages"] = facts.pairs("package")
    return data
