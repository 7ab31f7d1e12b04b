"""What `up` prints connects a shell; ports that listen; a start that fails names port and host."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reprise.cli import app
from reprise.cluster.raylog import cause_first
from reprise.cluster.record import Node, new_record
from reprise.cluster.site import Ports
from tests.cluster.bed import Bed
from tests.cluster.conftest import RAY_PYTHON, ROOT, Operator

DOCS = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
# Ports of Ray that cannot be bound to one address.
EVERYWHERE = (6379, 8266, 8267, 8269, 8271, 8273, 8274)

TRACEBACK = """\
2026-11-29 10:12:01,100 INFO scripts.py:1063 -- Did not find any active Ray processes.
Traceback (most recent call last):
  File "/opt/venv/bin/ray", line 8, in <module>
    sys.exit(main())
  File "/opt/venv/lib/python3.12/site-packages/ray/scripts/scripts.py", line 1180, in start
    node = ray._private.node.Node(
ray.exceptions.RaySystemError: System error: Failed to connect to GCS at 10.8.0.11:6379
During handling of the above exception, another exception occurred:
[2026-11-29 10:12:13,207 E 4188 4188] gcs_client.cc:312: Failed to get cluster ID
"""


def test_the_exception_is_the_first_line_and_no_frame_is_shown() -> None:
    said = cause_first(TRACEBACK)
    first, *rest = said.split(" | ")
    assert first.startswith("ray.exceptions.RaySystemError: System error: Failed to connect")
    assert "Failed to get cluster ID" in rest[-1]
    assert "File" not in said and "Traceback" not in said
    assert cause_first("") == "" and cause_first("Traceback (most recent call last):\n") == ""
    assert cause_first("no space left") == "no space left"


def test_the_printed_lines_are_a_shells_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "it's $(here)"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    hostfile = tmp_path / "hosts"
    hostfile.write_text("n1\n")
    done = CliRunner().invoke(app, ["cluster", "env", str(hostfile)])
    assert done.exit_code == 1 and done.stdout == "" and "reprise cluster up" in done.stderr
    values = {
        **{"profile": "cpu", "python": "/usr/bin/python3", "engine": "docker", "image": None},
        **{"gcs_port": 6379, "dashboard_port": 8265},
    }
    nodes = [Node(name="n1", slots=1, ip="fd00::1", interface="eth0")]
    record = new_record(hostfile, values, nodes, "/tmp")
    done = CliRunner().invoke(app, ["cluster", "env", str(hostfile)])
    assert done.exit_code == 0
    script = (
        f'{done.stdout}\nprintf \'%s\\n\' "$RAY_ADDRESS" "$RAY_AUTH_MODE" "$RAY_AUTH_TOKEN_PATH"'
    )
    shown = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == ["http://[fd00::1]:8265", "token", str(record.token_file)]


def pasted(script: str) -> subprocess.CompletedProcess[str]:
    """A shell of the operator, without any variable of Ray."""
    environment = {"PATH": f"{RAY_PYTHON.parent}:{os.environ['PATH']}", "HOME": "/nonexistent"}
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment, check=False
    )


@pytest.mark.rehearsal
@pytest.mark.full
def test_what_up_prints_connects_and_what_the_docs_say_listens(
    bed: Bed, operator: Operator
) -> None:
    hostfile = bed.hostfile(names=["node1", "node2"])
    up = operator.run("cluster", "up", str(hostfile))
    assert up.code == 0, (up.json["findings"], up.err)
    printed = subprocess.run(
        [str(ROOT / ".venv/bin/python"), "-m", "reprise", "cluster", "env", str(hostfile)],
        env=operator.environment(), cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert printed.count("export ") == 3

    ray = f"{shlex.quote(str(RAY_PYTHON))} -m ray.scripts.scripts"
    job = pasted(f"{printed}\n{ray} job submit -- echo hello from a job")
    assert job.returncode == 0 and "hello from a job" in job.stdout, job.stdout + job.stderr
    head = bed.host("node1").ip
    state = pasted(f"{printed}\n{ray} status --address {head}:6379")
    assert state.returncode == 0 and "2.0 GPU" in state.stdout, state.stdout + state.stderr
    cli = f"{shlex.quote(str(ROOT / '.venv/bin/python'))} -m reprise"
    asked = pasted(f"{printed}\ncd {shlex.quote(str(ROOT))} && {cli} doctor --machine cpu")
    assert f"http://{head}:8265: Ray answers and accepts the token: 2 nodes alive" in asked.stdout
    refused = pasted(
        f"export RAY_ADDRESS=http://{head}:8265\ncd {shlex.quote(str(ROOT))} && "
        f"{cli} train rehearsal --address http://{head}:8265 --dry-run"
    )
    assert refused.returncode == 1 and "token" in refused.stdout, refused.stdout + refused.stderr
    without = pasted(f"export RAY_ADDRESS=http://{head}:8265\n{ray} job list")
    assert without.returncode != 0

    # Another home of the same account sees a cluster of reprise, and is not asked to kill it.
    operator.home = "other"
    beside = operator.run("doctor", str(hostfile))
    operator.home = "state"
    assert all("another cluster of reprise runs in /tmp/rp-" in m for _, m in beside.of("sessions"))
    assert all("of another cluster of reprise" in m for _, m in beside.of("ports")), beside.json
    assert beside.code == 1 and not any("kill" in f["fix"] for f in beside.json["findings"])

    # docs/cluster.md: which port listens where.
    ports = Ports()
    for host in bed.hosts[:2]:
        fixed = ports.of_head() if host.name == "node1" else ports.of_worker()
        for line in host.run("ss", "-Hltn").splitlines():
            address, _, number = line.split()[3].rpartition(":")
            port = int(number)
            if port == 22:
                continue
            everywhere = address in ("*", "0.0.0.0", "[::]")
            workers = ports.worker_low <= port <= ports.worker_high
            assert port in fixed.values() or workers, line
            assert workers or not everywhere or port in EVERYWHERE, line
    assert all(f"| {port} " in DOCS for port in EVERYWHERE)
    assert operator.run("cluster", "down", str(hostfile)).code == 0


@pytest.mark.rehearsal
@pytest.mark.full
def test_a_head_that_drops_the_port_of_a_worker(bed: Bed, operator: Operator) -> None:
    """The doctor's own check is ignored, as when a firewall changes between check and start."""
    hostfile = str(bed.hostfile(names=["node1", "node2", "node3"]))
    head, lost = bed.host("node1"), bed.host("node3")
    rule = ("INPUT", "-p", "tcp", "--dport", "6379", "-s", lost.ip, "-j", "DROP")
    head.run("iptables", "-A", *rule)
    began = time.monotonic()
    try:
        process = operator.start("cluster", "up", hostfile, "--ignore", "mesh")
        assert process.stderr is not None
        times = [time.monotonic() for _ in process.stderr]
        process.wait()
    finally:
        head.run("iptables", "-D", *rule)
    print(f"reported after {time.monotonic() - began:.1f} s")
    assert process.stdout is not None
    out = process.stdout.read()
    assert process.returncode == 1
    assert f"no connection to the head node1 ({head.ip}) on port 6379 (gcs) within 10 s" in out
    assert '"where":"node3"' in out and "Ray's log: " in out and 'File \\"' not in out
    gaps = [b - a for a, b in zip([began, *times], times, strict=False)]
    assert max(gaps) < 40, gaps  # lines at most 15 s apart, on a slow machine
    for host in bed.hosts:
        assert not [line for line in host.processes() if "raylet" in line]
