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
    """Stop the given nodes in parallel; True when each reports that nothing remains."""
    values = {
        "N_ID": record.id,
        "N_ROOT": record.root,
        "N_ENGINE": record.engine,
        "N_NAME": record.container,
    }
    script = assignments(values) + scripts.text("node_stop.sh")
    jobs: list[tuple[Host, str]] = [(node.host, script) for node in nodes]
    answers = ssh.run(jobs, _SECONDS)
    clean = [_judge(answer, report) for answer in answers]
    return all(clean)


def _judge(answer: Answer, report: Report) -> bool:
    facts = parse_facts(answer.host, answer.output)
    if facts.one("stopped") != "yes":
        said = (answer.said.splitlines() or [answer.outcome.value])[-1]
        report.unknown("stop.no-answer", answer.host, outcome=answer.outcome.value, said=said)
        return False
    if left := facts.all("left"):
        report.failed("stop.left", answer.host, left=", ".join(left))
        return False
    return True


def stop_cluster(record: Record, ssh: Ssh, scripts: Scripts) -> Report:
    """Stop all nodes, workers and head at once; remove the record when nothing remains."""
    report = Report("cluster down")
    if stop_nodes(record, record.nodes, ssh, scripts, report):
        report.passed("stop")
        record.remove()
    report.data["cluster"] = {"id": record.id, "nodes": [node.name for node in record.nodes]}
    return report
