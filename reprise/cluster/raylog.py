"""What a failed start left in the logs of a node, in the order in which an operator reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reprise.cluster.doctor.doctor import Scripts
from reprise.cluster.doctor.facts import parse_facts
from reprise.cluster.record import Node, Record
from reprise.cluster.ssh import Ssh, assignments
from reprise.core.findings import Report

__all__ = ["cause_first", "report_logs"]

_SECONDS = 15.0
_LINES = 3
# The last line of a traceback: the exception with its text.
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout|Exit|Interrupt)\b")
_FRAME = re.compile(r"^(?:\s|Traceback \(most recent call last\)|During handling of|The above exc)")


def cause_first(said: str) -> str:
    """Output of a failed command on one line: the exception's own line, then its last lines.

    The frames of a traceback are left out. Empty for output without any other line.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip() and not _FRAME.match(line)]
    causes = [line for line in lines if _EXCEPTION.match(line)]
    first = causes[-1:]
    rest = [line for line in lines if line not in first][-_LINES:]
    return " | ".join([*first, *rest])


def report_logs(
    record: Record, nodes: Sequence[Node], ssh: Ssh, scripts: Scripts, report: Report
) -> None:
    """Add a note with the last lines of Ray's logs on each of the nodes that has some."""
    values = {"N_ROOT": record.root, "N_ENGINE": record.engine, "N_NAME": record.container}
    script = assignments(values) + scripts.text("node_tail.sh")
    for answer in ssh.run([(node.host, script) for node in nodes], _SECONDS):
        facts = parse_facts(answer.host, answer.output)
        lines = [value.replace(" ", ": ", 1) for value in facts.all("log")]
        if lines:
            report.note("start.log", answer.host, lines=" | ".join(lines))
