"""The fence of docs/cluster.md: its own network trains, another one reaches no port of Ray."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cluster.bed import IP, Bed, BedHost, sh
from tests.cluster.conftest import RAY_PYTHON, ROOT, Operator
from tests.cluster.test_cluster import assert_nothing_left, run_job

pytestmark = [pytest.mark.rehearsal, pytest.mark.full]

PAGE = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
RULES = re.findall(r"^(ip6?tables -I .*)$", PAGE, re.M)
OUTSIDE = "172.29.9"
ON_THREE = """
import ray, socket
ray.init()
@ray.remote(num_gpus=1)
class Node:
    def name(self):
        return socket.gethostname()
nodes = [Node.remote() for _ in range(3)]
print("NAMES", sorted(ray.get([node.name.remote() for node in nodes])))
"""
KNOCK = """
import socket, sys
for port in map(int, sys.argv[2:]):
    try:
        socket.create_connection((sys.argv[1], port), 1).close()
        print(port)
    except OSError:
        pass
"""


@pytest.fixture
def stranger(bed: Bed) -> Iterator[BedHost]:
    """node4 leaves the training network for another one, to which every host is connected too."""
    for host in bed.hosts:
        sh(IP, "-n", host.namespace, "addr", "add", _outside(host), "dev", "eth0")
    last = bed.hosts[3]
    sh(IP, "-n", last.namespace, "addr", "del", f"{last.ip}/24", "dev", "eth0")
    yield last
    sh(IP, "-n", last.namespace, "addr", "add", f"{last.ip}/24", "dev", "eth0")
    for host in bed.hosts:
        sh(IP, "-n", host.namespace, "addr", "del", _outside(host), "dev", "eth0")


def _outside(host: BedHost) -> str:
    return f"{OUTSIDE}.{host.ip.rpartition('.')[2]}/24"


def fence(bed: Bed, flag: str = "-I") -> None:
    """The page's lines on the three hosts of the cluster."""
    for host in bed.hosts[:3]:
        for rule in RULES:
            text = rule.replace("10.8.0.0/24", f"{bed.net}.0/24").replace(" -I ", f" {flag} ")
            host.run("sh", "-c", text)


def listening(host: BedHost) -> list[str]:
    """The ports of Ray on a host, whatever they are bound to."""
    found = {line.split()[3].rpartition(":")[2] for line in host.run("ss", "-Hltn").splitlines()}
    return sorted(found - {"22"}, key=int)


def open_to(stranger: BedHost, host: BedHost, address: str) -> list[str]:
    """The host's listening ports that a program on `stranger` connects to."""
    said = stranger.run(str(RAY_PYTHON), "-c", KNOCK, address, *listening(host))
    return said.split()


def link_local(host: BedHost) -> str | None:
    found = re.search(r"inet6 (fe80[^/ ]+)", sh(IP, "-n", host.namespace, "addr", "show", "eth0"))
    return f"{found[1]}%eth0" if found else None


def test_the_fence_of_the_page(bed: Bed, operator: Operator, stranger: BedHost) -> None:
    assert len(RULES) == 2
    hostfile = str(bed.hostfile(names=["node1", "node2", "node3"]))
    fence(bed)
    try:
        # With the rules in place: the doctor's mesh, the start, a job on all hosts.
        up = operator.run("cluster", "up", hostfile)
        assert up.code == 0, (up.json["findings"], up.err)
        assert ("mesh", "passed") in [(c["rule"], c["state"]) for c in up.json["checks"]]
        state, log = run_job(up, f"{RAY_PYTHON} -c '{ON_THREE}'")
        assert state == "SUCCEEDED" and "['node1', 'node2', 'node3']" in log, log
        assert operator.run("cluster", "status", hostfile).code == 0
        for host in bed.hosts[:3]:
            outside = _outside(host).partition("/")[0]
            local = link_local(host)
            assert open_to(stranger, host, outside) == []
            assert local is None or open_to(stranger, host, local) == []
        fence(bed, "-D")
        # Without them, the same program connects: the ports that Ray binds on all interfaces.
        head = bed.hosts[0]
        seen = open_to(stranger, head, _outside(head).partition("/")[0])
        assert {"6379", "8266", "8267", "8271"} <= set(seen)
        local = link_local(head)
        print("over IPv4", seen, "over IPv6", local and open_to(stranger, head, local))
        assert operator.run("cluster", "down", hostfile).code == 0
    finally:
        for host in bed.hosts[:3]:
            host.run("sh", "-c", "iptables -F INPUT; ip6tables -F INPUT", check=False)
    assert_nothing_left(bed, operator)
