"""Hosts that do not reach each other: the right host and port, before anything starts."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprise.cluster.doctor.context import Mesh
from reprise.cluster.doctor.doctor import diagnose
from reprise.cluster.doctor.mesh import pairs
from reprise.core.findings import Report, Severity
from tests.cluster.bed import IP, Bed, sh
from tests.cluster.conftest import Operator
from tests.cluster.make import base, context, of

NAMES = {6379: "gcs", 8266: "node_manager", 45000: "any other port"}
DROPPED = "no answer (packets are dropped)"
HOSTS = ("n1", "n2", "n3", "n4")


def report(
    broken: Callable[[str, str, int], str | None],
    hosts: tuple[str, ...] = HOSTS,
    busy: dict[str, frozenset[int]] | None = None,
    unread: dict[str, str] | None = None,
) -> Report:
    """The doctor's report on hosts between which `broken` gives the result of a connection."""
    what = context({name: base(name) for name in hosts})
    results = {
        (a, b, port): broken(a, b, port) or "ok"
        for a, b in itertools.permutations(hosts, 2)
        for port in ((6379, 8266, 45000) if b == hosts[0] else (8266, 45000))
    }
    what.mesh = Mesh(results, busy or {}, unread or {}, NAMES)
    return diagnose(what)[0]


def test_all_reach_all() -> None:
    assert not of(report(lambda *_: None), "mesh")


def test_a_port_that_is_dropped_for_one_host() -> None:
    found = of(report(lambda a, b, p: "timed out" if (a, p) == ("n3", 6379) else None), "mesh")
    ((where, message),) = [(f.where, f.message) for f in found]
    assert where == "n3"
    assert (
        message
        == "does not reach n1 (10.8.0.11) on port 6379 (gcs): no answer (packets are dropped)"
    )


def test_two_workers_apart() -> None:
    found = of(report(lambda a, b, p: "timed out" if {a, b} == {"n2", "n4"} else None), "mesh")
    assert [f.where for f in found] == ["n2", "n4"]
    assert "does not reach n4 (10.8.0.14) on any port" in found[0].message


def test_a_host_that_no_other_reaches() -> None:
    found = of(report(lambda a, b, p: "refused" if b == "n2" and p > 9000 else None), "mesh")
    ((where, message),) = [(f.where, f.message) for f in found]
    assert where == "n2"
    assert message == (
        "no other host reaches port 45000 (any other port) of this host: connection refused"
    )


def test_a_host_that_reaches_no_other() -> None:
    found = of(report(lambda a, b, p: "timed out" if a == "n4" else None), "mesh")
    assert [(f.where, f.message.partition(":")[0]) for f in found] == [
        ("n4", "this host reaches any port of no other host")
    ]


def test_with_two_hosts_the_pair_is_named() -> None:
    found = of(report(lambda a, b, p: "timed out" if b == "n1" else None, ("n1", "n2")), "mesh")
    assert [f.where for f in found] == ["n2"] and "does not reach n1" in found[0].message


def test_a_port_in_use_answers_without_a_greeting() -> None:
    def silent(a: str, b: str, p: int) -> str | None:
        return "silent" if (b, p) == ("n2", 8266) else None

    assert not of(report(silent, busy={"n2": frozenset({8266})}), "mesh")
    assert "another program answers" in of(report(silent), "mesh")[0].message


def test_a_host_that_took_no_part_is_unknown_and_no_fault_of_others() -> None:
    told = report(lambda a, b, p: "refused" if b == "n3" else None, unread={"n3": "no python3"})
    (finding,) = of(told, "mesh")
    assert finding.where == "n3" and finding.severity is Severity.WARNING and told.exit_code == 2


@pytest.mark.parametrize("count", [2, 3, 16])
def test_every_ordered_pair_of_few_hosts(count: int) -> None:
    assert len(pairs(count)) == count * (count - 1)


@pytest.mark.parametrize("count", [17, 64, 128, 1000])
def test_many_hosts_are_covered(count: int) -> None:
    found = pairs(count)
    assert all(a != b and 0 <= a < count and 0 <= b < count for a, b in found)
    assert {(0, n) for n in range(1, count)} | {(n, 0) for n in range(1, count)} <= found
    # Each host is source and target of several others, and the number grows with log2.
    for n in range(count):
        assert len({b for a, b in found if a == n}) >= 4
        assert len({a for a, b in found if b == n}) >= 4
    assert len(found) <= count * (count.bit_length() + 2)
    # Any group that is cut off from the rest (racks, switches) is crossed in both directions.
    for size in (count // 8, count // 2):
        for start in range(0, count, max(count // 7, 1)):
            group = {(start + k) % count for k in range(size)}
            assert any(a in group and b not in group for a, b in found)
            assert any(a not in group and b in group for a, b in found)


def test_packet_sizes() -> None:
    what = context({name: base(name) for name in HOSTS})
    text = base("n2").replace("mtu 1500", "mtu 9000")
    what = context({"n1": base("n1"), "n2": text, "n3": base("n3")})
    (finding,) = of(diagnose(what)[0], "mtu")
    assert (finding.where, finding.message) == ("n2", "MTU of eth0 is 9000, n[1,3] have 1500")
    what = context({"n1": base("n1"), "n2": base("n2").replace(" mtu 1500", "")})
    assert "not read" in of(diagnose(what)[0], "mtu")[0].message


# -- on four hosts, without Ray --------------------------------------------------------------------


@pytest.fixture
def firewall(bed: Bed) -> Iterator[Callable[..., None]]:
    """Rules for a host's incoming packets, removed after the test."""
    used = []

    def rule(host: str, *words: str) -> None:
        inside = bed.host(host)
        inside.run("iptables", "-A", "INPUT", *words)
        used.append(inside)

    yield rule
    for host in used:
        host.run("iptables", "-F", "INPUT")


@pytest.mark.rehearsal
def test_faults_between_real_hosts(
    bed: Bed, operator: Operator, firewall: Callable[..., None]
) -> None:
    hostfile = str(bed.hostfile())
    healthy = operator.run("doctor", hostfile)
    assert healthy.code == 0 and not healthy.of("mesh"), healthy.json["findings"]
    for host in bed.hosts:
        assert not [line for line in host.run("ss", "-Hltn").splitlines() if ":22 " not in line]

    # The GCS port is dropped for one node; two workers do not see each other; both at once.
    ips = {host.name: host.ip for host in bed.hosts}
    firewall("node1", "-p", "tcp", "--dport", "6379", "-s", ips["node3"], "-j", "DROP")
    firewall("node2", "-s", ips["node4"], "-j", "DROP")
    began = time.monotonic()
    up = operator.run("cluster", "up", hostfile)
    print(f"reported after {time.monotonic() - began:.1f} s")
    assert up.code == 1 and not list(operator.state.rglob("cluster.json"))
    told = up.of("mesh")
    assert (
        "node3",
        f"does not reach node1 ({ips['node1']}) on port 6379 (gcs): {DROPPED}",
    ) in told
    # Packets from node4 do not arrive at node2, so neither of the two connects to the other.
    assert {where for where, message in told if "any port" in message} == {"node2", "node4"}
    assert len(told) == 3


@pytest.mark.rehearsal
def test_packets_that_are_too_large_for_the_way(
    bed: Bed, operator: Operator, firewall: Callable[..., None]
) -> None:
    """Jumbo frames at every end, and a way to node2 that carries 1500 bytes."""
    for other in bed.hosts:
        if other.name != "node2":
            size = ("-m", "length", "--length", "1501:65535")
            firewall("node2", "-s", other.ip, *size, "-j", "DROP")
    try:
        _set_mtu(bed, 9000)
        done = operator.run("doctor", str(bed.hostfile()))
    finally:
        _set_mtu(bed, 1500)
    told = done.of("mesh")
    assert done.code == 1 and not done.of("mtu")
    assert told == [
        (
            "node2",
            "connections from other hosts open, but 64 KiB do not arrive: "
            "large packets are lost on the way",
        )
    ]


def _set_mtu(bed: Bed, size: int) -> None:
    for host in bed.hosts:
        sh(IP, "-n", host.namespace, "link", "set", "eth0", "mtu", str(size))
        sh(IP, "link", "set", f"v{bed.tag}{host.name[-1]}", "mtu", str(size))


@pytest.mark.rehearsal
def test_an_interface_with_another_mtu(bed: Bed, operator: Operator) -> None:
    host = bed.host("node4")
    sh(IP, "-n", host.namespace, "link", "set", "eth0", "mtu", "1400")
    try:
        done = operator.run("doctor", str(bed.hostfile()))
    finally:
        sh(IP, "-n", host.namespace, "link", "set", "eth0", "mtu", "1500")
    assert done.of("mtu") == [("node4", "MTU of eth0 is 1400, node[1-3] have 1500")]
    assert done.code == 0, done.json["findings"]


@pytest.mark.rehearsal
def test_a_host_without_a_python(bed: Bed, operator: Operator, tmp_path: Path) -> None:
    operator.extra = ""
    site = operator.environment()
    path = Path(site["SITE"])
    path.write_text(
        path.read_text(encoding="utf-8").replace("rehearsal/bin/python", "rehearsal/bin/none")
    )
    operator.environment = lambda: site  # type: ignore[method-assign]
    # Without the site's Python, the host's own python3 does it.
    done = operator.run("doctor", str(bed.hostfile()))
    assert not done.of("mesh") and ("mesh", "passed") in [
        (check["rule"], check["state"]) for check in done.json["checks"]
    ]
