"""The whole path on four hosts: doctor, up, a job on all nodes, faults, status, down."""

from __future__ import annotations

import time
from pathlib import Path

import httpx2
import pytest

from reprise.runs.ray.jobs import ENDED, Jobs
from tests.cluster.bed import CHECKOUT_IN_TMP, Bed, BedHost
from tests.cluster.conftest import RAY_PYTHON, Done, Operator

pytestmark = pytest.mark.rehearsal

ON_ALL_NODES = """
import ray, socket
ray.init()
@ray.remote(num_gpus=1)
class Node:
    def name(self):
        return socket.gethostname()
nodes = [Node.remote() for _ in range(4)]
print("NAMES", sorted(ray.get([node.name.remote() for node in nodes])))
"""


def leftovers(host: BedHost) -> list[str]:
    """What is there besides sshd, its sessions and this very look."""
    mine = ("sshd", "ps -ww -eo pid,args")
    lines = [line for line in host.processes() if not any(word in line for word in mine)]
    kept = CHECKOUT_IN_TMP.parts[0] if CHECKOUT_IN_TMP else ""
    files = [path.name for path in host.tmp.iterdir() if path.name != kept]
    sockets = host.run("ss", "-Hltn").splitlines()
    return [*lines, *files, *(line for line in sockets if ":22 " not in line)]


def assert_nothing_left(bed: Bed, operator: Operator) -> None:
    deadline = time.monotonic() + 90
    while (left := {h.name: leftovers(h) for h in bed.hosts if leftovers(h)}) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.5)
    assert left == {}
    assert not list(operator.state.rglob("cluster.json"))
    assert not list(operator.state.rglob("token"))


def run_job(done: Done, entrypoint: str) -> tuple[str, str]:
    cluster = done.json["cluster"]
    jobs = Jobs(cluster["address"], Path(cluster["token_file"]).read_text(encoding="utf-8"))
    jobs.submit("on-all-nodes", entrypoint, {}, {})
    deadline = time.monotonic() + 400
    while (state := jobs.state("on-all-nodes")[0]) not in ENDED:
        assert time.monotonic() < deadline, (state, jobs.log("on-all-nodes"))
        time.sleep(0.5)
    return state, jobs._client.get_job_logs("on-all-nodes")


def pid_of(host: BedHost, name: str) -> str:
    """The pid, as the host counts, of one of its processes."""
    return next(line.split()[0] for line in host.processes() if name in line)


def test_from_hostfile_to_nothing_left(bed: Bed, operator: Operator) -> None:
    hostfile = str(bed.hostfile())

    # A fault that the doctor finds: nothing is started.
    script = "import socket,time; s=socket.socket(); s.bind(('',6379)); s.listen(); time.sleep(600)"
    head = bed.hosts[0]
    squatter = head.spawn(str(RAY_PYTHON), "-c", script)
    head.wait_for_listener(6379)
    refused = operator.run("cluster", "up", hostfile)
    head.run("kill", pid_of(head, "6379"))
    squatter.wait()
    assert refused.code == 1
    ((where, message),) = refused.of("ports")
    assert where == "node1" and "port 6379 (gcs) is held by python" in message
    assert not list(operator.state.rglob("cluster.json"))

    doctor = operator.run("doctor", hostfile)
    assert doctor.code == 0, doctor.json["findings"]
    assert doctor.json["groups"] == [{"hosts": "node[1-4]", "problems": []}]

    up = operator.run("cluster", "up", hostfile)
    assert up.code == 0, (up.json["findings"], up.err)
    token = next(operator.state.rglob("token")).read_text(encoding="utf-8")
    for host in bed.hosts:
        assert not any(token in line for line in host.processes())
        assert token not in (host.root / "sshd.log").read_text(encoding="utf-8")

    assert httpx2.get(f"{up.json['cluster']['address']}/api/jobs/").status_code == 401
    state, log = run_job(up, f"{RAY_PYTHON} -c '{ON_ALL_NODES}'")
    assert state == "SUCCEEDED", log
    assert "NAMES ['node1', 'node2', 'node3', 'node4']" in log

    beside = operator.run("doctor", hostfile)
    assert beside.code == 0 and not beside.of("ports") and not beside.of("sessions")

    again = operator.run("cluster", "up", hostfile)
    assert again.code == 0 and "nothing was changed" in again.of("cluster-up")[0][1]

    # A worker dies: told at once by its own host's word, and brought back alone.
    raylets = {host.name: pid_of(host, "raylet/raylet") for host in bed.hosts}
    bed.host("node3").run("kill", "-9", raylets["node3"])
    status = operator.run("cluster", "status", hostfile)
    assert status.code == 1
    assert status.of("node") == [("node3", "raylet is not running")]
    back = operator.run("cluster", "up", hostfile)
    assert back.code == 0, (back.json["findings"], back.err)
    assert back.json["brought_back"] == ["node3"]
    after = {host.name: pid_of(host, "raylet/raylet") for host in bed.hosts}
    assert [name for name in after if after[name] != raylets[name]] == ["node3"]
    assert operator.run("cluster", "status", hostfile).code == 0

    down = operator.run("cluster", "down", hostfile)
    assert down.code == 0, down.json["findings"]
    assert_nothing_left(bed, operator)
    assert operator.run("cluster", "down", hostfile).code == 0
    assert operator.run("cluster", "status", hostfile).code == 1
