"""Take bad hosts out of a running cluster, and let spare ones join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from reprise.cluster.doctor.context import Context
from reprise.cluster.doctor.doctor import judge
from reprise.cluster.record import Record, find_record
from reprise.cluster.ssh import Ssh
from reprise.cluster.stop import stop_nodes
from reprise.core.errors import CannotTell
from reprise.core.findings import Report, Severity
from reprise.core.project import Project
from reprise.core.wait import wait_until
from reprise.flows.cluster.hosts import Selection, look_at, scripts_of
from reprise.flows.cluster.up import alone
from reprise.runs.ray.auth_token import read_token
from reprise.runs.ray.nodes import list_nodes

__all__ = ["FAULTS", "as_recorded", "faulty", "inspect", "promote", "take_out"]

FAULTS = frozenset(
    (
        *("fabric-manager", "gpu-count", "gpu-ecc", "gpu-memory", "gpu-nvlink", "gpu-rows"),
        *("gpu-xid", "rdma"),
    )
)
"""Rules of the doctor whose error means that the host is broken, not its settings or its load."""

_DEAD_SECONDS = 120.0
"""Ray lists a node that was stopped as dead at once, one that vanished after about 65 s."""


def as_recorded(selection: Selection) -> Selection:
    """The selection without evicted hosts, and with spares that joined as ordinary hosts."""
    record = find_record(selection.hostfile.path) if selection.hostfile is not None else None
    if record is None:
        return selection
    nodes = {node.name: node for node in record.nodes}
    hosts = [
        replace(host, spare=nodes[host.name].spare) if host.name in nodes else host
        for host in selection.hosts
        if host.name not in nodes or nodes[host.name].evicted is None
    ]
    return replace(selection, hosts=hosts)


def inspect(selection: Selection, project: Project, record: Record) -> Context:
    """The doctor's probe of the cluster's hosts and its spares, without the mesh."""
    return look_at(as_recorded(selection), project, record.id, record.container, mesh=False)


def faulty(context: Context, ignored: Sequence[str]) -> dict[str, str]:
    """Hosts that the doctor's probe finds broken, and why; `ignored` rules were forced."""
    found: dict[str, str] = {}
    for mark in judge(context).marks:
        if mark.severity is Severity.ERROR and mark.rule in FAULTS and mark.rule not in ignored:
            found.setdefault(mark.host, f"{mark.rule}: {mark.message}")
    return found


def promote(hostfile: Path, gpus: int) -> str | None:
    """Let the first spare with `gpus` slots join, which `up` then starts; its name, if any."""
    with alone(hostfile):
        record = find_record(hostfile)
        for node in record.nodes if record is not None else ():
            if node.spare and node.evicted is None and node.slots >= gpus:
                node.spare = False
                if record is not None:
                    record.save()
                return node.name
    return None


def take_out(
    selection: Selection, project: Project, bad: Mapping[str, str], spares: Sequence[str]
) -> str:
    """Stop Ray on the hosts `bad` (and why each is), mark them as evicted; let `spares` join.

    The mark is written first: a killed command leaves what `cluster down` needs. Returns why a
    host is still in Ray's list, so that a job could be placed on it; empty when none is.
    """
    if selection.hostfile is None:
        return "there is no hostfile"
    with alone(selection.hostfile.path):
        record = find_record(selection.hostfile.path)
        if record is None:
            return "the cluster was stopped"
        nodes = [node for node in record.active if node.name in bad]
        for node in nodes:
            node.evicted = bad[node.name]
        for node in record.nodes:
            node.spare = node.spare and node.name not in spares
        record.save()
        with Ssh(selection.site.ssh) as ssh:
            for node in nodes:
                report = Report("evict")
                node.clear = stop_nodes(record, [node], ssh, scripts_of(project), report)
        record.save()
    addresses = {node.ip: node.name for node in nodes}
    token = read_token(str(record.token_file))
    alive: list[str] = []

    def left() -> bool:
        nonlocal alive
        try:
            listed = list_nodes(record.address, token)
        except CannotTell:
            return False
        alive = [addresses[item.ip] for item in listed if item.ip in addresses and item.alive]
        return not alive

    if wait_until(left, _DEAD_SECONDS, every=1.0):
        return ""
    names = ", ".join(alive) or "the list of nodes"
    return f"Ray still lists {names} after {_DEAD_SECONDS:.0f} s"
