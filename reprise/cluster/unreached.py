"""Why a host gave no answer to a script, in the operator's words, with what to type."""

from __future__ import annotations

from reprise.cluster.answer import Answer, Outcome
from reprise.cluster.hosts.hostline import Host

__all__ = ["why"]


def why(host: Host, answer: Answer) -> tuple[str, str]:
    """What went wrong and what to do, for an answer that is not OK."""
    said = (answer.said.splitlines() or ["no reason given"])[-1]
    port = f"-p {host.port} " if host.port else ""
    name = f"[{host.name}]:{host.port}" if host.port else host.name
    told = {
        Outcome.KEY_UNKNOWN: (
            "ssh does not know this host's key",
            f"compare the fingerprint with the host's own, then: "
            f"ssh-keyscan {port}{host.name} >> ~/.ssh/known_hosts",
        ),
        Outcome.KEY_CHANGED: (
            "the host's key is not the one that is known: another machine, or a new installation",
            f"ask who runs the host; only if it was installed anew: ssh-keygen -R '{name}'",
        ),
        Outcome.DENIED: (
            f"ssh logged nobody in: {said}",
            f"add your key: ssh-copy-id {port}{host.name}, or start an agent: ssh-add",
        ),
        Outcome.HUNG: (
            f"the login hangs: {said}",
            f"try ssh {port}{host.name} true; look at its load and home file system",
        ),
        Outcome.NOT_FOUND: (
            f"a command was not found in a login without a terminal: {said}",
            "give absolute paths in the site file (paths.python)",
        ),
        Outcome.CUT: (
            f"the connection broke, or the login ran something else: {said}",
            f"try ssh {port}{host.name} sh -s </dev/null",
        ),
        Outcome.UNREACHABLE: (
            f"ssh could not connect: {said}",
            f"try ssh {port}{host.name} true; or go on without it: --exclude {host.name}",
        ),
    }
    return told.get(
        answer.outcome, (f"the script failed ({answer.code}): {said}", "run it by hand")
    )
