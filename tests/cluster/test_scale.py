"""Many hosts, by simulated answers: two in a hundred are slow and two are dead."""

from __future__ import annotations

import resource
import time

import pytest

from reprise.cluster.answer import Answer, AnswerKind
from reprise.cluster.doctor.context import Context, Expected, Mesh
from reprise.cluster.doctor.doctor import diagnose
from reprise.cluster.doctor.facts import parse_facts
from reprise.cluster.doctor.mesh import pairs
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.site import Site
from reprise.machines.registry import machine_named
from tests.cluster.make import NOW, base, of


def simulated(count: int) -> Context:
    """Answers of `count` hosts with 8 GPUs as the probe prints them.

    Of 50 hosts one is dead and one does not finish; no packet reaches host 20.
    """
    hosts = [Host(f"node{n:04d}", 8, n) for n in range(1, count + 1)]
    answers, facts = {}, {}
    for host in hosts:
        n = host.line
        text = base("n1").replace("10.8.0.11/", f"10.{8 + n // 250}.0.{n % 250 + 1}/")
        text = text.replace("src 10.8.0.11", f"src 10.{8 + n // 250}.0.{n % 250 + 1}")
        text = text.replace("hostname-i 10.8.0.11", f"hostname-i 10.{8 + n // 250}.0.{n % 250 + 1}")
        if n % 50 == 7:
            said = f"ssh: connect to host {host.name} port 22: Connection timed out"
            answers[host.name] = Answer(host.name, AnswerKind.UNREACHABLE, None, "", said, 0.0, 1.0)
            continue
        if n % 50 == 8:
            text = text.partition("= disk")[0]
            said = "no answer within 45 s"
            answers[host.name] = Answer(host.name, AnswerKind.HUNG, None, text, said, 0.0, 1.0)
        else:
            answers[host.name] = Answer(host.name, AnswerKind.OK, 0, text, "", NOW - 1, NOW + 2)
        facts[host.name] = parse_facts(host.name, text, NOW - 1.0, NOW + 2.0)
    context = Context(hosts, answers, facts, machine_named("h20"), Site(), Expected(), "10.8.0.2")
    took = [host for host, _ in context.answered()]
    ports = (8266, 8267, 8269, 8270, 10002, 19999, 45000)
    results = {
        (took[a].name, took[b].name, port): "timed out" if took[b].line == 20 else "ok"
        for a, b in pairs(len(took))
        for port in ports
    }
    context.mesh = Mesh(results, {}, {}, {45000: "any other port"})
    return context


@pytest.mark.parametrize("count", [128, 1024])
def test_many_hosts_are_judged_in_seconds(count: int) -> None:
    began = time.process_time()
    report, marks = diagnose(simulated(count))
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count} hosts: {seconds:.2f} s of processor time, at most {peak:.0f} MiB")
    assert seconds < 15 and len(report.findings) < 8
    dead = [n for n in range(1, count + 1) if n % 50 == 7]
    (reach,) = of(report, "reach")
    assert reach.where.startswith("node[0007,0057,0107") and len(dead) == count // 50 + (
        count % 50 >= 7
    )
    assert "Connection timed out" in reach.message
    (probe,) = of(report, "probe")
    assert probe.where.startswith("node[0008,0058,0108") and "45 s" in probe.message
    (mesh,) = of(report, "mesh")
    assert (mesh.where, report.exit_code) == ("node0020", 1)
    assert "no other host reaches any port" in mesh.message
    groups = marks.groups([f"node{n:04d}" for n in range(1, count + 1)])
    assert len(groups) == 4
