"""Why a host did not answer a script, and the command that helps."""

from __future__ import annotations

import re
import shlex

from reprise.cluster.answer import Answer, AnswerKind
from reprise.cluster.hosts.hostline import Host
from reprise.cluster.site import SshSettings
from reprise.cluster.ssh import login_words
from reprise.core.rules import render

__all__ = ["why"]

_TEXTS = {
    AnswerKind.KEY_UNKNOWN: "reach.key-unknown",
    AnswerKind.KEY_CHANGED: "reach.key-changed",
    AnswerKind.DENIED: "reach.denied",
    AnswerKind.HUNG: "reach.no-answer",
    AnswerKind.NOT_FOUND: "reach.command-not-found",
    AnswerKind.CUT: "reach.cut-off",
    AnswerKind.UNREACHABLE: "reach.no-connection",
}


# The client repeats the host, which the finding names anyway: texts of many hosts are equal.
_CLIENT = re.compile(r"^(?:ssh: connect to host \S+ port \d+|[^\s:@]+@[^\s:]+): ")


def why(host: Host, answer: Answer, settings: SshSettings) -> tuple[str, str]:
    """Message and fix of the rule `reach`, for an answer that is not OK."""
    known_hosts_name = f"[{host.name}]:{host.port}" if host.port else host.name
    changed = answer.outcome is AnswerKind.KEY_CHANGED
    words = login_words(host, settings)
    values = {
        "said": _CLIENT.sub("", (answer.said.splitlines() or ["no reason given"])[-1]),
        "code": answer.code,
        "port": f"-p {host.port} " if host.port else "",
        "host": known_hosts_name if changed else host.name,
        "ssh": shlex.join(words),
        "options": "".join(f"{shlex.quote(word)} " for word in words[1:-1]),
        "target": words[-1],
    }
    return render(_TEXTS.get(answer.outcome, "reach.script-failed"), values)
