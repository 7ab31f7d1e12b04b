"""Ray's own TLS on four hosts: a job on all of them, no way in without the certificate."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from reprise.cluster.record import Node, Record, find_record, new_record
from reprise.cluster.tls import make_certificates, tls_files, tls_variables
from reprise.core.errors import CannotTell
from tests.cluster.bed import Bed
from tests.cluster.conftest import RAY_PYTHON, Operator
from tests.cluster.test_cluster import ON_ALL_NODES, assert_nothing_left, run_job


def new_one(folder: Path, tls: bool) -> Record:
    nodes = [
        Node(name=f"n{n}", slots=8, ip=ip, interface="eth0", spare=n == 3)
        for n, ip in enumerate(("10.8.0.11", "fd00::12", "10.8.0.13"), start=1)
    ]
    values = {
        **{"profile": "cpu", "python": "/usr/bin/python3", "engine": "docker", "image": None},
        **{"gcs_port": 6379, "dashboard_port": 8265, "tls": tls},
    }
    return new_record(folder / "hosts", values, nodes, "/tmp")


def test_a_certificate_for_all_hosts_and_spares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    record = new_one(tmp_path, tls=True)
    make_certificates(record)
    folder = record.folder / "tls"
    assert sorted(path.name for path in folder.iterdir()) == ["ca.crt", "node.crt", "node.key"]
    words = ["openssl", "x509", "-in", str(folder / "node.crt"), "-noout", "-ext", "subjectAltName"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for address in ("10.8.0.11", "FD00:0:0:0:0:0:0:12", "10.8.0.13", "127.0.0.1"):
        assert f"IP Address:{address}" in shown
    verify = ["openssl", "verify", "-CAfile", str(folder / "ca.crt"), str(folder / "node.crt")]
    assert subprocess.run(verify, check=True, capture_output=True).returncode == 0
    assert set(tls_files(record)) == {"N_TLS_CA", "N_TLS_CERT", "N_TLS_KEY"}
    assert tls_variables(record, "/tmp/x/tls")["RAY_TLS_SERVER_KEY"] == "/tmp/x/tls/node.key"
    assert "PRIVATE KEY" not in str(record.shown()) + str(record.to_json())


def test_without_tls_or_openssl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    plain = new_one(tmp_path, tls=False)
    assert tls_files(plain) == {} and tls_variables(plain, "/x") == {}
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotTell, match="not installed"):
        make_certificates(new_one(tmp_path, tls=True))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#!/bin/sh\nexec sleep 60\n", "no answer within 1 s"),
        ("#!/bin/sh\necho 'req: Unknown option: -newkey' >&2; exit 1\n", "Unknown option"),
        ("#!/nowhere/sh\n", "No such file"),
    ],
)
def test_an_openssl_that_makes_nothing(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("reprise.cluster.tls._SECONDS", 1.0)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "openssl").write_text(text)
    (tmp_path / "openssl").chmod(0o755)
    record = new_one(tmp_path, tls=True)
    with pytest.raises(CannotTell, match=said):
        make_certificates(record)
    assert not (record.folder / "tls").exists()


def test_a_record_from_before_tls_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    record = new_one(tmp_path, tls=False)
    path = record.folder / "cluster.json"
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written.pop("tls") is False
    path.write_text(json.dumps(written))
    again = find_record(tmp_path / "hosts")
    assert again is not None and again == record and not again.tls


def ray_status(address: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """`ray status`, which connects to the GCS, with no more patience than it takes."""
    mine = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    return subprocess.run(
        [str(RAY_PYTHON.parent / "ray"), "status", "--address", address],
        env={**mine, **environment, "RAY_gcs_rpc_server_connect_timeout_s": "5"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.rehearsal
@pytest.mark.full
def test_a_cluster_with_tls(bed: Bed, operator: Operator) -> None:
    hostfile = str(bed.hostfile())
    operator.extra = "[network]\ntls = true\n"
    up = operator.run("cluster", "up", hostfile)
    assert up.code == 0, (up.json["findings"], up.err)
    state, log = run_job(up, f"{RAY_PYTHON} -c '{ON_ALL_NODES}'")
    assert state == "SUCCEEDED", log
    assert "NAMES ['node1', 'node2', 'node3', 'node4']" in log

    # The key is readable by its owner alone, here and there, and in no command line.
    (key,) = operator.state.rglob("tls/node.key")
    text = key.read_text(encoding="utf-8")
    there = [path for host in bed.hosts for path in host.tmp.glob("rp-*/tls/node.key")]
    assert len(there) == 4 and not list(operator.state.rglob("ca.key"))
    for path in (key, *there):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_text(encoding="utf-8").strip() == text.strip()
    for host in bed.hosts:
        assert not any("PRIVATE KEY" in line for line in host.processes())

    # The printed variables let a shell in; the token alone does not.
    env = operator.run("cluster", "env", hostfile).json
    assert env["environment"]["RAY_USE_TLS"] == "1"
    inside = ray_status(env["gcs_address"], env["environment"])
    assert inside.returncode == 0 and "4.0 GPU" in inside.stdout, (inside.stdout, inside.stderr)
    plain = {k: v for k, v in env["environment"].items() if "TLS" not in k}
    outside = ray_status(env["gcs_address"], plain)
    assert outside.returncode != 0 and "GPU" not in outside.stdout

    # A worker that died joins again with the same certificate.
    victim = bed.host("node3")
    raylet = next(line.split()[0] for line in victim.processes() if "raylet/raylet" in line)
    victim.run("kill", "-9", raylet)
    back = operator.run("cluster", "up", hostfile)
    assert back.code == 0 and back.json["brought_back"] == ["node3"]

    assert operator.run("cluster", "down", hostfile).code == 0
    assert_nothing_left(bed, operator)
    assert not list(operator.state.rglob("node.key"))
