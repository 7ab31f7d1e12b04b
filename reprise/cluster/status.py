"""The state of a cluster: the head's node list, compared with each host's own report."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from reprise.cluster.doctor.doctor import Scripts
from reprise.cluster.nodes import NodeList, Standing, api_job, node_list, standing_of, state_job
from reprise.cluster.record import Node, Record
from reprise.cluster.ssh import Ssh
from reprise.core.findings import Report

__all__ = ["HEAD_RULE", "ClusterState", "cluster_state", "judge_state"]

HEAD_RULE = "api"
"""The rule that fails where the head does not answer with its node list."""

STATE_SECONDS = 8.0
"""Limit of one host's answer: a node that does not answer is reported within 15 seconds."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The answers of the head and of every host at one moment."""

    listed: NodeList
    standing: dict[str, Standing]

    def fault(self, node: Node, needed: int) -> str | None:
        """The fault of a node as a text; None for a healthy node."""
        own = self.standing.get(node.name)
        if own is None or not own.answer.ok:
            said = "not contacted"
            if own is not None:
                said = (own.answer.said.splitlines() or [""])[-1] or own.answer.outcome.value
            return f"does not answer: {said}"
        if own.container not in (None, "running"):
            return f"container is {own.container}, expected running"
        if not own.has_raylet:
            return "raylet is not running"
        return None if self.listed.why is not None else self._listed_fault(node, needed)

    def _listed_fault(self, node: Node, needed: int) -> str | None:
        listed = self.listed.nodes.get(node.ip)
        if listed is None:
            return "not in the head's node list"
        if listed.state != "ALIVE":
            return f"listed by the head as {listed.state}: {listed.reason or 'no reason given'}"
        if listed.gpus < needed:
            return f"offers {listed.gpus:g} of {needed} GPUs"
        return None


def cluster_state(record: Record, ssh: Ssh, scripts: Scripts) -> ClusterState:
    """Query every host and the head's node list, all at once."""
    jobs = [
        (node.host, script)
        for node, script in (state_job(record, node, scripts) for node in record.active)
    ]
    head = record.nodes[0].host
    answers = ssh.run([*jobs, (head, api_job(record, scripts, {}, 0))], STATE_SECONDS)
    return ClusterState(node_list(answers[-1]), standing_of(answers[:-1]))


def judge_state(record: Record, state: ClusterState) -> Report:
    """A finding for each faulty node, and for a head that does not answer."""
    report = Report("cluster status")
    if state.listed.why is not None:
        report.failed(
            "api.no-answer", record.nodes[0].name, address=record.address, why=state.listed.why
        )
    else:
        report.passed(HEAD_RULE)
    rows = []
    for node in record.nodes:
        listed = state.listed.nodes.get(node.ip)
        fault = state.fault(node, node.slots) if node.active else None
        row: dict[str, object] = {"name": node.name, "ip": node.ip, "fault": fault}
        row |= {"state": "unknown", "gpus": None}
        if not node.active:
            row["state"] = "spare" if node.evicted is None else "evicted"
        elif listed is not None:
            row |= {"state": listed.state, "gpus": listed.gpus}
        rows.append(row)
        if node.evicted is not None:
            hostfile = shlex.quote(record.hostfile)
            reason = node.evicted
            report.note("node.evicted", node.name, reason=reason, hostfile=hostfile, host=node.name)
        if fault is not None:
            if node is record.nodes[0]:
                report.failed("node.head", node.name, fault=fault)
            else:
                report.failed("node.worker", node.name, fault=fault)
    report.settle("node")
    report.data["cluster"] = record.shown()
    report.data["nodes"] = rows
    return report
