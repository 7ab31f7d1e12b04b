"""Faults of a cluster that starts or runs: a partition, a silent node, another Ray beside it."""

from __future__ import annotations

import shlex
import time

import pytest

from tests.cluster.bed import Bed, BedHost
from tests.cluster.conftest import RAY_PYTHON, Operator
from tests.cluster.test_cluster import assert_nothing_left

pytestmark = [pytest.mark.rehearsal, pytest.mark.full]

# A Ray of somebody else, with ports, folder and address of its own.
OTHER = [
    *("env", "RAY_AUTH_MODE=disabled"),
    *(str(RAY_PYTHON), "-m", "ray.scripts.scripts", "start", "--head"),
    *("--node-ip-address=127.0.0.1", "--port=7379", "--dashboard-port=7265"),
    *("--include-dashboard=false", "--ray-client-server-port=7001", "--temp-dir=/tmp/other"),
    *("--node-manager-port=7266", "--object-manager-port=7267", "--metrics-export-port=7271"),
    *("--runtime-env-agent-port=7268", "--dashboard-agent-listen-port=7270"),
    *("--dashboard-agent-grpc-port=7269", "--min-worker-port=20000", "--max-worker-port=20999"),
    *("--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats"),
]


def wait_for_raylet(host: BedHost, folder: str, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not any("raylet/raylet" in line and folder in line for line in host.processes()):
        assert time.monotonic() < deadline, host.processes()
        time.sleep(0.2)


def of_other(host: BedHost) -> list[str]:
    return [line for line in host.processes() if "/tmp/other" in line]


def end_other(host: BedHost) -> None:
    deadline = time.monotonic() + 90
    while lines := of_other(host):
        assert time.monotonic() < deadline, lines
        host.run("kill", "-9", *(line.split()[0] for line in lines), check=False)
        time.sleep(0.1)


def start_other(host: BedHost) -> None:
    """Start the other Ray; on a busy machine its own limit of 30 s may need a second attempt."""
    for _ in range(3):
        host.run("sh", "-c", f"{shlex.join(OTHER)} >/tmp/log-of-ray 2>&1", check=False)
        if any("gcs_server" in line for line in of_other(host)):
            return
        end_other(host)
    raise AssertionError((host.tmp / "log-of-ray").read_text(encoding="utf-8"))


def test_a_partition_while_it_starts(bed: Bed, operator: Operator) -> None:
    hostfile = str(bed.hostfile())
    lost = bed.host("node3")
    process = operator.start("cluster", "up", hostfile)
    wait_for_raylet(bed.host("node1"), "/tmp/rp-")
    bed.cut(lost)
    out, err = process.communicate()
    assert process.returncode == 1 and "Traceback" not in err
    assert '"where":"node3"' in out
    for host in bed.hosts:
        assert host is lost or not [line for line in host.processes() if "raylet" in line]
    # What could not be reached could not be stopped: that is told, and `down` does it later.
    assert '"rule":"stop","state":"unknown"' in out
    bed.join(lost)
    down = operator.run("cluster", "down", hostfile)
    assert down.code == 0, down.json["findings"]
    assert_nothing_left(bed, operator)


def test_a_silent_node_and_another_ray(bed: Bed, operator: Operator) -> None:
    hostfile = str(bed.hostfile(names=["node1", "node2"]))
    head, worker = bed.host("node1"), bed.host("node2")
    try:
        start_other(head)
        up = operator.run("cluster", "up", hostfile)
        assert up.code == 0, (up.json["findings"], up.err)
        assert any("gcs_server" in message for _, message in up.of("sessions"))

        bed.cut(worker)
        began = time.monotonic()
        status = operator.run("cluster", "status", hostfile)
        print(f"told after {time.monotonic() - began:.1f} s")
        bed.join(worker)
        ((where, message),) = status.of("node")
        assert status.code == 1 and where == "node2" and "does not answer" in message
        # Nothing was fenced: the worker still has its raylet.
        wait_for_raylet(worker, "/tmp/rp-", 1)

        before = len(of_other(head))
        down = operator.run("cluster", "down", hostfile)
        assert down.code == 0, down.json["findings"]
        assert len(of_other(head)) == before >= 3
        assert not [line for line in head.processes() if "/tmp/rp-" in line]
    finally:
        end_other(head)


def test_a_start_that_is_killed_is_cleaned_by_down(bed: Bed, operator: Operator) -> None:
    hostfile = str(bed.hostfile(names=["node1", "node2"]))
    process = operator.start("cluster", "up", hostfile)
    wait_for_raylet(bed.host("node1"), "/tmp/rp-")
    process.kill()
    process.communicate()
    again = operator.run("cluster", "up", hostfile)
    assert again.code == 1
    assert operator.run("cluster", "down", hostfile).code == 0
    for host in bed.hosts[:2]:
        assert not [line for line in host.processes() if "/tmp/rp-" in line]
