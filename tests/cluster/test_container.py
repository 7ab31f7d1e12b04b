"""Ray in containers: a real engine on each of two hosts, an image, up, status, down."""

from __future__ import annotations

import io
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.bed import Bed, BedHost
from tests.cluster.conftest import RAY_PYTHON, Operator

pytestmark = [pytest.mark.rehearsal, pytest.mark.containers]


def empty_image() -> bytes:
    """A root file system of folders and links: programs come from the host, read-only."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("usr", "etc", "tmp", "proc", "sys", "dev", "root", "var", "run"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(folder)
        for name in ("bin", "lib", "lib64", "sbin"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
    return buffer.getvalue()


def docker(host: BedHost, *words: str, data: bytes = b"") -> str:
    inside = ["nsenter", "-t", str(host.pid()), "-n", "-m", "-p", "-u", "--"]
    done = subprocess.run(
        [*inside, "/usr/bin/docker", *words], input=data, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def start_engine(host: BedHost) -> subprocess.Popen[bytes]:
    root = host.root / "docker"
    engine = host.spawn(
        *("/usr/sbin/dockerd", "--data-root", str(root), "--bridge=none", "--iptables=false"),
        *("--log-level=error", "--pidfile", "/run/docker.pid"),
    )
    deadline = time.monotonic() + 60
    while "docker.sock" not in host.run("ls", "/run", check=False):
        assert time.monotonic() < deadline and engine.poll() is None, "no engine"
        time.sleep(0.2)
    return engine


@pytest.fixture
def engines(bed: Bed) -> Iterator[list[BedHost]]:
    hosts = bed.hosts[:2]
    started = [start_engine(host) for host in hosts]
    docker(hosts[0], "import", "-", "rays:1", data=empty_image())
    # Imported twice it would have two ids: the doctor wants one and the same.
    archive = bed.folder / "image.tar"
    docker(hosts[0], "save", "-o", str(archive), "rays:1")
    docker(hosts[1], "load", "-i", str(archive))
    yield hosts
    for host, engine in zip(hosts, started, strict=True):
        host.run("sh", "-c", "kill $(cat /run/docker.pid)", check=False)
        engine.wait(60)


@pytest.mark.full
def test_up_and_down_in_containers(bed: Bed, operator: Operator, engines: list[BedHost]) -> None:
    python = str(Path(RAY_PYTHON).resolve().parents[1])
    mounts = ["/usr:/usr:ro", "/etc/passwd:/etc/passwd:ro", f"{python}:{python}:ro"]
    mounts.append(f"{RAY_PYTHON.parents[1]}:{RAY_PYTHON.parents[1]}:ro")
    listed = ", ".join(f'"{mount}"' for mount in mounts)
    operator.extra = (
        f'[container]\nimage = "rays:1"\npython = "{RAY_PYTHON}"\nmounts = [{listed}]\n'
        "[variables]\nSECRET_KEY = 'one two'\n"
    )
    hostfile = str(bed.hostfile(names=[host.name for host in engines]))
    dry = operator.run("cluster", "up", hostfile, "--dry-run")
    command = dry.json["commands"]["node2"]
    assert "docker run -d --name reprise-" in command and "one two" not in command

    up = operator.run("cluster", "up", hostfile)
    assert up.code == 0, (up.json["findings"], up.err)
    for host in engines:
        (name,) = docker(host, "ps", "--format", "{{.Names}}").splitlines()
        assert name.startswith("reprise-")
        inside = docker(host, "exec", name, "/usr/bin/sh", "-c", "echo $SECRET_KEY $RAY_AUTH_MODE")
        assert inside == "one two token"
        assert not any("one two" in line for line in host.processes())
    assert operator.run("cluster", "status", hostfile).code == 0

    name = docker(engines[1], "ps", "--format", "{{.Names}}")
    docker(engines[1], "kill", name)
    status = operator.run("cluster", "status", hostfile)
    assert status.of("node") == [("node2", "container is exited, expected running")]
    back = operator.run("cluster", "up", hostfile)
    assert back.code == 0 and back.json["brought_back"] == ["node2"], back.json["findings"]

    down = operator.run("cluster", "down", hostfile)
    assert down.code == 0, down.json["findings"]
    for host in engines:
        assert docker(host, "ps", "-aq") == ""
        assert not list(host.tmp.glob("rp-*"))
        assert not [line for line in host.processes() if "raylet" in line]
