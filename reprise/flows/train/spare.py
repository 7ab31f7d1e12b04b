"""A failure that a host is blamed on: the host is taken out, and a spare one takes its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reprise.cluster.doctor.context import Context
from reprise.cluster.hosts.names import fold
from reprise.cluster.record import Record, find_record
from reprise.core.errors import OperatorError
from reprise.flows.cluster.evict import faulty, inspect, take_out
from reprise.flows.train.place import HostfileCluster, Need
from reprise.runs.ray.jobs import open_jobs
from reprise.runs.state.folder import RunFolder
from reprise.runs.supervise.retry import BadHost, Triaged

__all__ = ["blame", "no_other_host", "replace_host"]


def no_other_host(triaged: Triaged | None) -> BadHost | None:
    """The bad host of a failure where Reprise does not choose the hosts."""
    if triaged is None or not triaged.blames_host:
        return None
    obstacle = "the next attempt would use it again; exclude it from the cluster first"
    return BadHost(triaged.host or "a host", triaged.title, obstacle)


def replace_host(
    place: HostfileCluster,
    folder: RunFolder,
    number: int,
    need: Need,
    triaged: Triaged | None,
    say: Callable[[str], None],
) -> BadHost | None:
    """Find the bad hosts of attempt `number` by triage and by the doctor's probe; replace them.

    None when no host is to blame: the next attempt is an ordinary one.
    """
    record = find_record(place.hostfile)
    if record is None:
        return no_other_host(triaged)
    try:
        context = inspect(place.selection, place.project, record)
    except OperatorError as error:
        say(f"the hosts were not inspected: {error}")
        return no_other_host(triaged)
    forced = [*place.ignore, *folder.read().forced]
    bad, unnamed = blame(record, context, triaged, forced)
    if not bad:
        return unnamed
    shown = BadHost(fold(list(bad)), "; ".join(dict.fromkeys(bad.values())))
    spares, obstacle = _room(record, context, bad, need)
    try:
        obstacle = obstacle or _others(folder)
        done = not obstacle
        if done:
            obstacle = take_out(place.selection, place.project, bad, spares)
    except OperatorError as error:
        # The dashboard does not answer, or another command starts or stops the cluster.
        return BadHost(shown.host, shown.reason, f"it was not taken out: {error.message}")
    if done:
        folder.event("evicted", attempt=number, hosts=bad, spares=spares, obstacle=obstacle)
        joined = f"; spare {', '.join(spares)} joins" if spares else ""
        say(f"evicted {shown.host}: {shown.reason}{joined}")
    return BadHost(shown.host, shown.reason, obstacle)


def blame(
    record: Record, context: Context, triaged: Triaged | None, forced: list[str]
) -> tuple[dict[str, str], BadHost | None]:
    """Bad hosts in use and why each is; if triage blames a host that is not known, that one."""
    active = {node.name for node in record.active}
    bad = {name: why for name, why in faulty(context, forced).items() if name in active}
    if triaged is None or not triaged.blames_host:
        return bad, None
    name = _name_of(triaged.host, record, context)
    if name in active:
        return {name: triaged.title, **bad}, None
    shown = triaged.host or "a host"
    obstacle = (
        "neither the logs nor the doctor name a host of the hostfile; find it with: "
        f"reprise doctor {record.hostfile} --active"
    )
    return bad, None if bad else BadHost(shown, triaged.title, obstacle)


def _name_of(text: str, record: Record, context: Context) -> str:
    """The host of the hostfile that a log names by its name, its address or its own name."""
    for node in record.nodes:
        facts = context.facts.get(node.name)
        own = facts.one("hostname") if facts is not None else None
        if text and text.lower() in (node.name.lower(), node.ip.lower(), (own or "").lower()):
            return node.name
    return ""


def _room(
    record: Record, context: Context, bad: Mapping[str, str], need: Need
) -> tuple[list[str], str]:
    """Marked spares that must join, and why the hosts that are left do not suffice."""
    head = record.nodes[0].name
    if head in bad:
        return [], (
            f"{head} is the head, which a running cluster cannot replace: reprise cluster down "
            f"{record.hostfile}, remove {head} from the hostfile, then resume the run"
        )
    healthy = {host.name for host, _ in context.answered()} - set(bad)
    fit = [node for node in record.nodes if node.name in healthy and node.slots >= need.gpus]
    stay = [node for node in fit if node.active]
    spares = [node.name for node in fit if node.spare and node.evicted is None]
    missing = max(need.nodes - len(stay), 0)
    if missing > len(spares):
        return [], (
            f"the recipe needs {need.nodes} hosts with {need.gpus} GPUs, and {len(stay)} healthy "
            f"hosts and {len(spares)} spares are left; repair the host, or add a host to the "
            "hostfile after reprise cluster down, then resume the run"
        )
    return spares[:missing], ""


def _others(folder: RunFolder) -> str:
    """Why Ray on a host must not be stopped: jobs that are not this run's run on the cluster."""
    own = {attempt.job for attempt in folder.read().attempts}
    others = [job for job in open_jobs(folder).unfinished() if job not in own]
    if not others:
        return ""
    jobs = ", ".join(others[:4])
    return f"other jobs run on the cluster and may use it ({jobs}); end them, then resume the run"
