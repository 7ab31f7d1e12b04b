"""A container engine that cannot build, with the docker clients of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from reprise.core.errors import CannotTell, OperatorError
from reprise.images.build import BuildOptions, build_image
from reprise.images.engine import can_build
from reprise.images.files import kind_named

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = sorted(
    {
        str(Path(found).resolve())
        for folder in os.get_exec_path()
        if (found := shutil.which("docker", path=folder))
    }
)
needs_docker = pytest.mark.skipif(not CLIENTS, reason="there is no docker client")


@needs_docker
def test_a_stopped_daemon_is_reported_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
    monkeypatch.setenv("REPRISE_ENGINE", CLIENTS[0])
    steps: list[str] = []
    with pytest.raises(CannotTell, match="does not answer") as caught:
        build_image(ROOT / "versions.lock", kind_named("cpu"), BuildOptions(), steps.append)
    assert "systemctl start docker" in caught.value.fix
    assert steps == []


@needs_docker
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_without_buildx_is_known(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client itself says whether it could, without a daemon."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    said = subprocess.run(
        [client, "build", str(tmp_path)],
        env={**os.environ, "DOCKER_BUILDKIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    if "buildx component is missing" not in said:
        can_build(client)
        return
    with pytest.raises(OperatorError, match="has no buildx component") as caught:
        can_build(client)
    assert "apt-get install docker-buildx" in caught.value.fix
