"""Start a cluster: head, barrier, workers in parallel, barrier on nodes and GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reprise.cluster.answer import Answer
from reprise.cluster.commands import NodeCommand, node_command
from reprise.cluster.doctor.doctor import Scripts
from reprise.cluster.doctor.facts import parse_facts
from reprise.cluster.hosts.names import fold
from reprise.cluster.nodes import Listed, NodeList, ask_api
from reprise.cluster.raylog import cause_first, report_logs
from reprise.cluster.record import Node, Record
from reprise.cluster.site import Site
from reprise.cluster.ssh import Job, Ssh, assignments
from reprise.cluster.status import ClusterState
from reprise.cluster.stop import stop_nodes
from reprise.cluster.tls import tls_files
from reprise.core.findings import Report
from reprise.core.progress import Display, Task
from reprise.machines.registry import Machine

__all__ = ["Starter"]

_START_SECONDS = 240.0
_BARRIER_SECONDS = 240.0
# The output of `ray start` when its raylet needs more than 30 s to register: a fixed limit in Ray
# (ray/_private/node.py, 2.60.0) that a busy machine or a slow file system may exceed.
_SLOW_START = "timed out during startup"


@dataclass(slots=True)
class Starter:
    """Starts nodes of one record. After any failure, the started nodes are stopped again."""

    record: Record
    machine: Machine
    site: Site
    ssh: Ssh
    scripts: Scripts
    display: Display

    def command(self, node: Node) -> NodeCommand:
        """The command of one node."""
        return node_command(self.record, node, self.machine, self.site)

    def start_all(self) -> Report:
        """Start head and workers; the report is a problem when anything fails."""
        report = Report("cluster up")
        try:
            self._start_all(report)
        except BaseException:
            self._undo(self.record.active, report)
            raise
        if list(report.errors()):
            self._show_logs(self.record.active, report)
            self._undo(self.record.active, report)
        return report

    def _show_logs(self, nodes: Sequence[Node], report: Report) -> None:
        """Ray's last log lines on the head and on each node that has an error."""
        wrong = {finding.where for finding in report.errors()}
        head = self.record.nodes[0]
        shown = [node for node in nodes if node.name in wrong or node is head]
        report_logs(self.record, shown, self.ssh, self.scripts, report)

    def _start_all(self, report: Report) -> None:
        head, *workers = self.record.active
        if not self._start([head], report):
            return
        listed = self._barrier([head], report)
        if listed is None:
            return
        if workers and not self._start(workers, report):
            return
        self._barrier(self.record.active, report)

    def bring_back(self, missing: Sequence[Node], state: ClusterState) -> Report:
        """Start the missing workers of a running cluster; the others are not touched."""
        report = Report("cluster up")
        reached = [node for node in missing if state.standing[node.name].answer.ok]
        for node in missing:
            if node not in reached:
                fault = state.fault(node, node.slots) or "does not answer"
                report.failed("reach.node-fault", node.name, fault=fault)
        # Remains of a node hold the ports and the folder: remove them first.
        clean = stop_nodes(self.record, reached, self.ssh, self.scripts, report)
        if reached and clean and self._start(reached, report):
            self._barrier(reached, report)
        if list(report.errors()):
            self._show_logs(reached, report)
        return report

    def _start(self, nodes: Sequence[Node], report: Report) -> bool:
        """Run the start script on the nodes in parallel; a host's own error becomes a finding."""
        names = ", ".join(node.name for node in nodes[:4]) + (" …" if len(nodes) > 4 else "")
        task = self.display.task(f"start Ray on {names}", len(nodes), "hosts")
        token = self.record.token_file.read_text(encoding="utf-8")
        jobs = [(node.host, self._script(node, token)) for node in nodes]
        answers = self.ssh.run(
            jobs,
            _START_SECONDS,
            lambda answer: task.advance(1, answer.host),
            on_wait=_waiting(task),
        )
        answers = self._slow_again(nodes, jobs, answers, report)
        good = [self._judge(answer, report) for answer in answers]
        task.end(f"{sum(good)} of {len(good)} started")
        return all(good)

    def _slow_again(
        self, nodes: Sequence[Node], jobs: Sequence[Job], answers: list[Answer], report: Report
    ) -> list[Answer]:
        """Start nodes again that exceeded Ray's own limit: half of them at a time, then singly.

        Many nodes that register at once may be too much for the head, or for a machine that holds
        several of them.
        """
        last = {answer.host: answer for answer in answers}
        for share in (2, len(nodes)):
            slow = [node for node in nodes if _SLOW_START in last[node.name].said]
            at_once = max(-(-len(slow) // share), 1)
            for first in range(0, len(slow), at_once):
                last |= self._once_more(slow[first : first + at_once], jobs, report)
        return [last[answer.host] for answer in answers]

    def _once_more(
        self, nodes: Sequence[Node], jobs: Sequence[Job], report: Report
    ) -> dict[str, Answer]:
        """Start nodes again after removing their remains."""
        names = [node.name for node in nodes]
        self.display.line(f"exceeded Ray's own limit of 30 s, starting again: {', '.join(names)}")
        if not stop_nodes(self.record, nodes, self.ssh, self.scripts, report):
            return {}
        repeated = [job for job in jobs if job[0].name in names]
        task = self.display.task(f"start Ray again on {len(names)} hosts", len(names), "hosts")
        answers = self.ssh.run(repeated, _START_SECONDS, on_wait=_waiting(task))
        task.end(f"{sum(answer.ok for answer in answers)} of {len(names)} started")
        return {answer.host: answer for answer in answers}

    def _script(self, node: Node, token: str) -> str:
        command = self.command(node)
        head = self.record.nodes[0]
        values = {
            "N_HEAD": "" if node is head else head.ip,
            "N_PORT": str(self.record.gcs_port),
            "N_ID": self.record.id,
            "N_ROOT": self.record.root,
            "N_TOKEN": token,
            **tls_files(self.record),
            "N_ENGINE": self.record.engine,
            "N_NAME": self.record.container,
        }
        words = assignments({f"w{n}": word for n, word in enumerate(command.words)})
        listed = " ".join(f'"$w{n}"' for n in range(len(command.words)))
        return (
            assignments(values)
            + assignments(command.variables, export=True)
            + f"{words}set -- {listed}\n"
            + self.scripts.text("node_start.sh")
        )

    def _judge(self, answer: Answer, report: Report) -> bool:
        if answer.ok:
            return True
        said = cause_first(answer.said) or answer.outcome.value
        why = parse_facts(answer.host, answer.output).why("head")
        if why is not None:
            ip, port = self.record.nodes[0].ip, self.record.gcs_port
            head = self.record.nodes[0].name
            report.failed(
                "start.head-not-reached", answer.host, head=head, ip=ip, port=port, why=why
            )
            return False
        if answer.reached:
            report.failed("start.ray-failed", answer.host, said=said)
        else:
            outcome = answer.outcome.value
            report.failed("start.no-answer", answer.host, outcome=outcome, said=said)
        return False

    def _barrier(self, nodes: Sequence[Node], report: Report) -> NodeList | None:
        """Wait until the head lists every node as alive with its GPUs; report the others."""
        wanted = {node.ip: node.slots for node in nodes}
        task = self.display.task(f"wait for {len(nodes)} nodes and {sum(wanted.values())} GPUs")
        wait = _waiting(task)
        found = ask_api(self.record, self.ssh, self.scripts, wanted, _BARRIER_SECONDS, wait)
        short = _short(nodes, found.nodes, report) if found.why is None else 0
        task.end(found.why or f"{len(nodes) - short} of {len(nodes)} nodes ready")
        if found.why is not None:
            report.failed(
                "barrier.no-answer",
                self.record.nodes[0].name,
                address=self.record.address,
                limit=_BARRIER_SECONDS,
                why=found.why,
            )
            return None
        if short:
            return None
        report.settle("barrier")
        return found

    def _undo(self, nodes: Sequence[Node], report: Report) -> None:
        task = self.display.task("stop the started nodes")
        clean = stop_nodes(self.record, nodes, self.ssh, self.scripts, report)
        task.end("all removed" if clean else "some could not be removed")
        if clean:
            self.record.remove()


def _waiting(task: Task) -> Callable[[Sequence[str]], None]:
    """Shows for which hosts a task waits, and for how long; the display limits how often."""
    began = time.monotonic()

    def show(names: Sequence[str]) -> None:
        if names:
            seconds = time.monotonic() - began
            task.update(task.done, f"waiting for {fold(list(names))}, {seconds:.0f} s")

    return show


def _short(nodes: Sequence[Node], listed: Mapping[str, Listed], report: Report) -> int:
    """The number of nodes that are missing, not alive or short of GPUs; reports each."""
    before = len(report.findings)
    for node in nodes:
        found = listed.get(node.ip)
        if found is None:
            report.failed("barrier.not-listed", node.name, ip=node.ip)
        elif found.state != "ALIVE":
            reason = found.reason or "no reason given"
            report.failed("barrier.not-alive", node.name, state=found.state, reason=reason)
        elif found.gpus < node.slots:
            report.failed(
                "barrier.too-few-gpus", node.name, ip=node.ip, gpus=found.gpus, slots=node.slots
            )
    return len(report.findings) - before
