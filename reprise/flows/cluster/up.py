"""A cluster from start to end: inspect the machines, start Ray, show its state, stop it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reprise.cluster.doctor.context import Context
from reprise.cluster.doctor.doctor import diagnose
from reprise.cluster.hosts.hostfile import Hostfile
from reprise.cluster.hosts.names import fold, unfold
from reprise.cluster.record import Node, Record, bracketed, find_record, new_record
from reprise.cluster.ssh import Ssh
from reprise.cluster.start import Starter
from reprise.cluster.status import cluster_state, judge_state
from reprise.cluster.stop import stop_cluster
from reprise.cluster.tls import make_certificates, tls_variables
from reprise.core.errors import OperatorError
from reprise.core.files import try_lock
from reprise.core.findings import Report
from reprise.core.progress import Display
from reprise.core.project import Project
from reprise.flows.cluster.hosts import Selection, look_at, scripts_of
from reprise.machines.registry import machine_named

__all__ = [
    "UpOptions",
    "alone",
    "cluster_down",
    "cluster_env",
    "cluster_status",
    "cluster_up",
    "watch_cluster",
]

_TOKENS_SINCE = (2, 52)
"""The first Ray with token authentication (its release notes)."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    """`ignore` names rules whose errors do not keep the cluster from starting.

    `readmit` names evicted hosts of a running cluster on which Ray is started again.
    """

    dry_run: bool = False
    ignore: Sequence[str] = ()
    readmit: Sequence[str] = ()


def cluster_up(selection: Selection, project: Project, options: UpOptions) -> Report:
    """Start the cluster of a hostfile, or start the missing nodes of one that runs.

    Nothing is started while a rule of the doctor fails. When a start fails, what was started is
    stopped. `data["commands"]` holds each host's command.
    """
    hostfile = _hostfile(selection)
    with alone(hostfile.path):
        record = find_record(hostfile.path)
        if record is not None:
            _readmit(record, hostfile.path, unfold(options.readmit))
            return _complete(record, hostfile, selection, project)
        _readmit(None, hostfile.path, unfold(options.readmit))
        context = look_at(selection, project)
        report, _ = diagnose(context, "cluster up")
        report = _ignoring(report, options.ignore)
        report.findings = [*selection.notes.findings, *report.findings]
        report.data.pop("groups", None)
        if list(report.errors()) and not options.dry_run:
            report.note("cluster-up.nothing-started", str(hostfile.path))
            return report
        return _start(context, hostfile, selection, project, options, report)


def _start(
    context: Context,
    hostfile: Hostfile,
    selection: Selection,
    project: Project,
    options: UpOptions,
    report: Report,
) -> Report:
    _token_note(context, report)
    nodes = _nodes(context, options.dry_run)
    record = _record(hostfile, selection, nodes)
    with Ssh(selection.site.ssh) as ssh, Display() as display:
        starter = Starter(
            record, selection.machine, selection.site, ssh, scripts_of(project), display
        )
        commands = [starter.command(node) for node in record.active]
        if options.dry_run:
            record.remove()
        else:
            report.absorb(starter.start_all())
    report.data["commands"] = {command.node.name: command.shown() for command in commands}
    report.data["cluster"] = record.shown()
    return report


def _readmit(record: Record | None, hostfile: Path, names: Sequence[str]) -> None:
    """Let evicted hosts join again. Raises OperatorError for a host that is not evicted."""
    evicted = {node.name: node for node in record.nodes if node.evicted} if record else {}
    strange = [name for name in names if name not in evicted]
    if strange:
        known = fold(list(evicted)) or "none"
        raise OperatorError(
            "cluster-up.not-evicted", str(hostfile), hosts=fold(strange), evicted=known
        )
    for name in names:
        evicted[name].evicted, evicted[name].clear = None, False
    if record is not None and names:
        record.save()


def _complete(record: Record, hostfile: Hostfile, selection: Selection, project: Project) -> Report:
    """A second `up`: nothing on a whole cluster, the missing workers on one that has lost some."""
    names = [(host.name, host.slots) for host in hostfile.hosts]
    if names != [(node.name, node.slots) for node in record.nodes]:
        raise OperatorError("cluster-up.other-hosts", str(hostfile.path))
    scripts = scripts_of(project)
    # As it was started: a machine that was named then is not named again.
    machine = machine_named(record.profile)
    with Ssh(selection.site.ssh) as ssh, Display() as display:
        state = cluster_state(record, ssh, scripts)
        missing = [node for node in record.active if state.fault(node, node.slots) is not None]
        if not missing and state.listed.why is None:
            report = Report("cluster up")
            report.passed("cluster-up")
            report.note("cluster-up.already-up", str(hostfile.path))
            report.data["cluster"] = record.shown()
            return report
        if record.nodes[0] in missing or state.listed.why is not None:
            return replace(judge_state(record, state), command="cluster up")
        starter = Starter(record, machine, selection.site, ssh, scripts, display)
        report = starter.bring_back(missing, state)
    report.data["cluster"] = record.shown()
    report.data["brought_back"] = [node.name for node in missing]
    return report


def cluster_status(selection: Selection, project: Project) -> Report:
    """The state of the cluster of a hostfile, from its list of nodes and from each host."""
    record = _known(_hostfile(selection))
    with Ssh(selection.site.ssh) as ssh:
        return judge_state(record, cluster_state(record, ssh, scripts_of(project)))


def cluster_env(hostfile: Path) -> Report:
    """Variables that connect a shell to the cluster of a hostfile, in `data`; asks no host.

    Raises OperatorError when no cluster was started from the hostfile.
    """
    record = find_record(hostfile)
    if record is None:
        raise OperatorError("cluster-record.unknown", str(hostfile), hostfile=hostfile)
    report = Report("cluster env")
    report.passed("cluster-record")
    report.data["environment"] = {
        **record.variables,
        **tls_variables(record, str(record.folder / "tls")),
    }
    report.data["gcs_address"] = f"{bracketed(record.nodes[0].ip)}:{record.gcs_port}"
    return report


def watch_cluster(
    selection: Selection, project: Project, seconds: float, tell: Callable[[str], None]
) -> None:
    """Ask every `seconds` and report each change, until interrupted. Nothing is fenced."""
    record = _known(_hostfile(selection))
    scripts = scripts_of(project)
    before: dict[str, str | None] = {}
    with Ssh(selection.site.ssh) as ssh:
        while True:
            began = time.monotonic()
            state = cluster_state(record, ssh, scripts)
            now = {node.name: state.fault(node, node.slots) for node in record.active}
            for name, fault in now.items():
                if before.get(name, "") != fault:
                    tell(f"{time.strftime('%H:%M:%S')} {name}: {fault or 'ok'}")
            before = now
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))


def cluster_down(selection: Selection, project: Project, forget: Sequence[str] = ()) -> Report:
    """Stop the cluster of a hostfile, and only that; an unknown cluster is not an error.

    `forget` names hosts that may stay without an answer. Raises OperatorError for a name that is
    not a host of the cluster.
    """
    hostfile = _hostfile(selection)
    with alone(hostfile.path):
        record = find_record(hostfile.path)
        if record is None:
            report = Report("cluster down")
            report.passed("stop")
            report.note("stop.unknown-cluster", str(hostfile.path))
            return report
        names, forget = [node.name for node in record.to_stop], unfold(forget)
        if strange := [name for name in forget if name not in names]:
            raise OperatorError(
                "hosts-select.unknown-host",
                str(hostfile.path),
                option="--forget",
                names=fold(strange),
                hosts=fold(names),
            )
        with Ssh(selection.site.ssh) as ssh:
            return stop_cluster(record, ssh, scripts_of(project), forget)


def _hostfile(selection: Selection) -> Hostfile:
    if selection.hostfile is None:
        raise OperatorError("hostfile.required", "HOSTFILE")
    if not selection.hostfile.path.is_file():
        # The cluster is found again by the path of its hostfile.
        raise OperatorError("hostfile.not-kept", str(selection.hostfile.path))
    return selection.hostfile


def _known(hostfile: Hostfile) -> Record:
    record = find_record(hostfile.path)
    if record is None:
        raise OperatorError("cluster-record.unknown", str(hostfile.path), hostfile=hostfile.path)
    return record


def _ignoring(report: Report, rules: Sequence[str]) -> Report:
    """Errors of the named rules become warnings, and say so."""
    unknown = set(rules) - {check.rule for check in report.checks}
    if unknown:
        known = ", ".join(sorted(check.rule for check in report.checks))
        raise OperatorError("ignore.unknown-rule", ", ".join(sorted(unknown)), rules=known)
    report.downgrade(rules, "ignored by --ignore")
    return report


def _token_note(context: Context, report: Report) -> None:
    for host, facts in context.answered():
        text = facts.pairs("package").get("ray", "")
        parts = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
        if len(parts) == 2 and parts < _TOKENS_SINCE:
            report.warn("token.unsupported", host.name, version=text)
        return


def _nodes(context: Context, dry_run: bool) -> list[Node]:
    """Nodes with their addresses. The doctor's rules have passed, so that each has one."""
    nodes = []
    for host in context.hosts:
        address = context.address(host)
        if address is None and not dry_run:
            raise OperatorError("address.missing", host.name)
        ip, interface = (address.ip, address.interface) if address else ("ADDRESS?", "INTERFACE?")
        nodes.append(
            Node(
                name=host.name,
                slots=host.slots,
                ip=ip,
                interface=interface,
                user=host.user,
                port=host.port,
                spare=host.spare,
            )
        )
    return nodes


def _record(hostfile: Hostfile, selection: Selection, nodes: list[Node]) -> Record:
    site = selection.site
    values = {
        "profile": selection.machine.name,
        "python": site.container.python if site.container.image else site.paths.python,
        "engine": site.container.engine,
        "image": site.container.image,
        "gcs_port": site.ports.gcs,
        "dashboard_port": site.ports.dashboard,
        "tls": site.network.tls,
    }
    record = new_record(hostfile.path, values, nodes, site.paths.temp)
    if record.tls:
        try:
            make_certificates(record)
        except BaseException:
            # Nothing was started: an interrupted or failed openssl leaves no cluster behind.
            record.remove()
            raise
    return record


@contextlib.contextmanager
def alone(hostfile: Path) -> Iterator[None]:
    """Two commands must not start or stop the same cluster at once."""
    with hostfile.open("rb") as file:
        if try_lock(file.fileno()) is False:
            raise OperatorError("cluster-busy.locked", str(hostfile))
        yield
