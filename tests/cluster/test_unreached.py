"""Hosts that do not answer: one finding for all of them, with commands that work as typed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.cluster.answer import Answer, AnswerKind
from reprise.cluster.doctor.context import Context
from reprise.cluster.doctor.doctor import diagnose
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.site import Site, SshSettings
from reprise.cluster.unreached import why
from tests.cluster.make import base, context, of


def silent(context: Context, name: str, kind: AnswerKind, said: str) -> None:
    answer = Answer(name, kind, None, "", said.replace("HOST", name), 0.0, 1.0)
    context.answers = {**context.answers, name: answer}
    context.facts = {k: v for k, v in context.facts.items() if k != name}


def test_unreachable_hosts_share_a_finding() -> None:
    what = context({f"node{n}": base(f"n{n}") for n in range(1, 6)})
    for name in ("node3", "node4", "node5"):
        said = "ssh: connect to host HOST port 22: No route to host"
        silent(what, name, AnswerKind.UNREACHABLE, said)
    report, marks = diagnose(what)
    (finding,) = of(report, "reach")
    assert (finding.where, finding.message) == (
        "node[3-5]",
        "SSH could not connect: No route to host",
    )
    assert finding.fix.endswith("--exclude node[3-5]") and "try ssh node3 true" in finding.fix
    assert [names for names, _ in marks.groups([h.name for h in what.hosts])] == [
        "node[1-2]",
        "node[3-5]",
    ]


@pytest.mark.parametrize(
    ("kind", "said", "fix"),
    [
        (AnswerKind.UNREACHABLE, "ssh: connect to host n port 22: x", "try ssh {} true"),
        (AnswerKind.DENIED, "al@n: Permission denied (publickey).", "ssh-copy-id {};"),
        (AnswerKind.HUNG, "no answer within 45 s", "try ssh {} true"),
        (AnswerKind.CUT, "closed", "try ssh {} sh -s </dev/null"),
    ],
)
def test_the_fix_has_the_sites_ssh_config(kind: AnswerKind, said: str, fix: str) -> None:
    host = Host("n", 8, 1, user="al", port=2222)
    answer = Answer("n", kind, None, "", said, 0.0, 1.0)
    message, text = why(host, answer, SshSettings(config="my conf"))
    assert fix.format("-F 'my conf' -p 2222 al@n") in text and "al@n:" not in message
    plain = replace(host, user=None, port=None)
    assert "-F" not in why(plain, answer, Site().ssh)[1]
