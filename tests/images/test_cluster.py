"""The cpu image's host part, and four containers of it as a cluster (`make demo-cluster`)."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.images.base import DEBIAN
from tests.images.bed import ROOT, SBIN, Engine, sh

pytestmark = [pytest.mark.containers, pytest.mark.rehearsal]

PYTHON = ROOT / ".venv-rehearsal" / "bin" / "python"


def build(engine: Engine, debian: str, *words: str, root: Path = ROOT) -> str:
    return str(report_of(engine, "--base", debian, *words, root=root)["image"])


def report_of(engine: Engine, *words: str, root: Path = ROOT) -> dict[str, object]:
    command = [str(ROOT / ".venv/bin/python"), "-m", "reprise", "image", "build", "cpu", "--json"]
    command += words
    env = {**os.environ, **engine.env}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def node(engine: Engine, debian: str) -> str:
    """The image's first stage: all of the host, without the environments."""
    return build(engine, debian, "--target", "node")


def test_a_base_made_here_is_found_again(engine: Engine, debian: str, node: str) -> None:
    # What is built on it is not taken for it, though it is newer and has all of its labels.
    engine.docker("tag", debian, DEBIAN)
    first, second = (report_of(engine, "--target", "node") for _ in range(2))
    assert (first["base"], first["built"]) == (DEBIAN, True)
    assert second == {**second, "image": first["image"], "id": first["id"], "built": False}


def test_a_host_without_keys_says_what_to_mount(engine: Engine, node: str) -> None:
    done = subprocess.run(
        ["/usr/bin/docker", "run", "--rm", node],
        env={**os.environ, **engine.env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "expected public keys in /run/secrets/authorized_keys" in done.stderr
    assert "-v FILE:/run/secrets/authorized_keys:ro" in done.stderr


def test_keys_of_a_host_are_its_own(engine: Engine, node: str, tmp_path: Path) -> None:
    assert engine.inside(node, "ls /etc/ssh/ssh_host_* 2>/dev/null | wc -l") == "0"
    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "client"))
    mount = f"{tmp_path}/client.pub:/run/secrets/authorized_keys:ro"
    keys = []
    for user in ("root", "reprise"):
        one = engine.docker(
            *("run", "-d", "-v", mount, "--user", user, "-e", "CUDA_HOME=/a b", node)
        )
        try:
            wait_healthy(engine, one)
            log = engine.docker("logs", one)
            keys.append(next(line for line in log.splitlines() if line.startswith("host key: ")))
            told = login(engine, one, user, tmp_path, keys[-1].removeprefix("host key: "))
            assert told.splitlines() == [user, "/a b"]
        finally:
            engine.docker("rm", "--force", one)
    assert keys[0] != keys[1]


def wait_healthy(engine: Engine, container: str) -> None:
    deadline = time.monotonic() + 60
    while (
        state := engine.docker("inspect", "--format", "{{.State.Health.Status}}", container)
    ) != ("healthy"):
        assert time.monotonic() < deadline, (state, engine.docker("logs", container))
        time.sleep(0.5)


def login(engine: Engine, container: str, user: str, folder: Path, key: str) -> str:
    address = engine.docker("inspect", "--format", "{{.NetworkSettings.IPAddress}}", container)
    known = folder / "known_hosts"
    known.write_text(f"[{address}]:2222 {key}\n")
    options = (
        "-o",
        f"UserKnownHostsFile={known}",
        "-o",
        "BatchMode=yes",
        "-o",
        "IdentitiesOnly=yes",
    )
    return sh(
        *("ssh", "-F", "none", *options, "-i", str(folder / "client"), "-p", "2222"),
        *(f"{user}@{address}", 'id -un; echo "$CUDA_HOME"'),
    )


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A compose file that shows this machine's environments to the four hosts, read-only."""
    homes = {str(PYTHON.resolve().parents[1]), str(ROOT), "/root/.pyenv"}
    volumes = [f"{path}:{path}:ro" for path in sorted(homes) if Path(path).is_dir()]
    service = {"volumes": volumes}
    names = ("head", "worker1", "worker2", "worker3")
    path = tmp_path / "override.json"
    path.write_text(json.dumps({"services": dict.fromkeys(names, service)}))
    yield path


def demo(engine: Engine, image: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **engine.env, "PATH": f"{ROOT}/.venv/bin:{SBIN}", **variables}
    command = ["sh", str(ROOT / "scripts" / "demo_cluster.sh"), image]
    # A demo that was killed before left its folder here; this one must not.
    before = demo_folders()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert demo_folders() <= before
    return done


def demo_folders() -> set[Path]:
    return set((ROOT / ".cache").glob("demo-*"))


def assert_demo_ran(engine: Engine, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nodes: head worker1 worker2 worker3" in done.stdout
    assert engine.docker("ps", "--all", "--quiet", "--filter", "label=io.reprise.demo") == ""
    assert engine.docker("network", "ls", "--quiet", "--filter", "label=io.reprise.demo") == ""


def test_a_job_on_four_containers(engine: Engine, node: str, mounted: Path) -> None:
    done = demo(
        engine,
        node,
        DEMO_OVERRIDE=str(mounted),
        DEMO_PYTHON=str(PYTHON),
        DEMO_REPRISE=str(ROOT / ".venv" / "bin" / "reprise"),
    )
    assert_demo_ran(engine, done)
