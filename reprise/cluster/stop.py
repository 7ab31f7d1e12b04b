"""Stop a cluster: processes with its id, on its own hosts, with a check that nothing remains."""

from __future__ import annotations

from collections.abc import Sequence

from reprise.cluster.answer import Answer
from reprise.cluster.doctor.doctor import Scripts
from reprise.cluster.doctor.facts import parse_facts
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.record import Node, Record
from reprise.cluster.ssh import Ssh, assignments
from reprise.core.findings import Report

__all__ = ["stop_cluster", "stop_nodes"]

_SECONDS = 90.0


def stop_nodes(
    record: Record, nodes: Sequence[Node], ssh: Ssh, scripts: Scripts, report: Report
) -> bool:
    """Stop the given nodes in parallel; True when each reports that nothing of it remains.

    A folder without the cluster's mark is named in a warning and left: it is not the cluster's.
    """
    values = {
        "N_ID": record.id,
        "N_ROOT": record.root,
        "N_ENGINE": record.engine,
        "N_NAME": record.container,
    }
    script = assignments(values) + scripts.text("node_stop.sh")
    jobs: list[tuple[Host, str]] = [(node.host, script) for node in nodes]
    answers = ssh.run(jobs, _SECONDS)
    clean = [_judge(node, answer, ssh, report) for node, answer in zip(nodes, answers, strict=True)]
    return all(clean)


def _judge(node: Node, answer: Answer, ssh: Ssh, report: Report) -> bool:
    facts = parse_facts(answer.host, answer.output)
    if facts.one("stopped") != "yes":
        said = (answer.said.splitlines() or [answer.outcome.value])[-1]
        report.unknown("stop.no-answer", answer.host, outcome=answer.outcome.value, said=said)
        return False
    login = ssh.shown(node.host)
    for path in facts.all("strange"):
        report.warn("stop.strange-folder", answer.host, path=path, ssh=login)
    if left := facts.all("left"):
        report.failed("stop.left", answer.host, left=", ".join(left), ssh=login)
        return False
    return True


def stop_cluster(record: Record, ssh: Ssh, scripts: Scripts, forget: Sequence[str] = ()) -> Report:
    """Stop all nodes, workers and head at once; remove the record when nothing remains.

    Hosts in `forget` that do not answer no longer keep the record; a warning names what may be
    left there.
    """
    report = Report("cluster down")
    lost = [node for node in record.to_stop if node.name in forget]
    kept = [node for node in record.to_stop if node.name not in forget]
    clean = stop_nodes(record, kept, ssh, scripts, report)
    for node in lost:
        tried = Report("cluster down")
        if stop_nodes(record, [node], ssh, scripts, tried):
            continue
        login = ssh.shown(node.host)
        report.warn("stop.forgotten", node.name, root=record.root, id=record.id, ssh=login)
    if clean:
        report.settle("stop")
        record.remove()
    report.data["cluster"] = {"id": record.id, "nodes": [node.name for node in record.to_stop]}
    return report
