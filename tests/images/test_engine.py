"""Images with a real container engine: locked through it, verified in it, carried in a bundle."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lock.registry import registry
from lock.servers import run_git

from reprise.bundle.create import create
from reprise.bundle.setup import setup_from_bundle
from reprise.core.findings import Verdict
from reprise.flows.lock.update import lock_images
from reprise.flows.lock.verify import verify_entries
from reprise.lock import read_lock
from reprise.lock.rows import ThisMachine

DOCKER = "/usr/bin/docker"


@contextlib.contextmanager
def engine(folder: Path, subnet: str) -> Iterator[str]:
    """An engine of the test's own; yields its socket."""
    folder.mkdir()
    socket = f"unix://{folder}/s"
    command = ["dockerd", "--data-root", f"{folder}/root", "--exec-root", f"{folder}/exec"]
    command += ["-H", socket, "-p", f"{folder}/pid", "--bip", subnet, "--iptables=false"]
    env = os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        try:
            for _ in range(600):
                probe = subprocess.run(
                    [DOCKER, "-H", socket, "version"], capture_output=True, check=False
                )
                if probe.returncode == 0:
                    break
                time.sleep(0.1)
            else:
                raise AssertionError((folder / "log").read_text(encoding="utf-8")[-2000:])
            yield socket
        finally:
            process.terminate()
            process.wait()


def docker(*args: str) -> str:
    return subprocess.check_output([DOCKER, *args], text=True).strip()


@pytest.mark.full
def test_an_image_from_tag_to_a_machine_without_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRISE_ENGINE", DOCKER)
    root = tmp_path / "project"
    root.mkdir()
    path = root / "versions.lock"
    (tmp_path / "file").write_text("content")
    with tarfile.open(tmp_path / "base.tar", "w") as archive:
        archive.add(tmp_path / "file", "file")

    def state() -> str:
        _, (row,) = verify_entries(read_lock(path), ["image.base"], ThisMachine(root))
        return row.state

    with registry(tmp_path / "r") as served:
        name = f"{served.host}/site/base"
        path.write_text(
            f'schema = 1\n[image.base]\nmachines = ["h20"]\nrepository = "{name}"\n'
            'want = "v1"\nunpinned = "to be resolved"\n'
        )
        with engine(tmp_path / "e1", "172.31.241.1/24") as socket:
            monkeypatch.setenv("DOCKER_HOST", socket)
            docker("import", str(tmp_path / "base.tar"), f"{name}:v1")
            docker("push", "-q", f"{name}:v1")
            assert lock_images(path, [], write=True).verdict is Verdict.OK
            image = read_lock(path).image["base"]
            (pushed,) = [
                item.partition("@")[2]
                for item in docker(
                    "image", "inspect", "-f", '{{join .RepoDigests " "}}', f"{name}:v1"
                ).split()
            ]
            assert image.digest == pushed
            assert image.image_id == docker("image", "inspect", "-f", "{{.Id}}", f"{name}:v1")
            assert state() == "ok"
            docker("import", "-c", "LABEL other=1", str(tmp_path / "base.tar"), f"{name}:v1")
            docker("rmi", "-f", f"{name}@{pushed}")
            docker("push", "-q", f"{name}:v1")
            assert state() == "drift"
            assert lock_images(path, [], write=True).verdict is Verdict.PROBLEM
            docker("pull", "-q", f"{name}@{pushed}")
            assert state() == "ok"
            run_git(root, "init", "-q", ".")
            run_git(root, "add", ".")
            run_git(root, "commit", "-qm", "x")
            report = create(path, tmp_path / "b", ["base"], "h20", with_images=True)
            assert report.verdict is Verdict.OK, report.findings
    away = tmp_path / "away"
    away.mkdir()
    shutil.copy(path, away)
    root, path = away, away / "versions.lock"
    with engine(tmp_path / "e2", "172.31.242.1/24") as socket:
        monkeypatch.setenv("DOCKER_HOST", socket)
        assert state() == "missing"
        assert setup_from_bundle(path, tmp_path / "b", [], "h20").verdict is Verdict.OK
        (archive,) = (away / ".cache/bundles").glob("*/images/base.tar")
        docker("load", "-q", "-i", str(archive))
        assert state() == "ok"
        # Without a registry the engine itself says what the tag is; loaded, it knows no digest.
        assert lock_images(path, [], write=False).verdict is Verdict.UNKNOWN


@pytest.mark.full
def test_the_engine_says_what_a_tag_is_when_the_registry_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRISE_ENGINE", DOCKER)
    path = tmp_path / "versions.lock"
    (tmp_path / "file").write_text("content")
    base = str(tmp_path / "base.tar")
    with tarfile.open(base, "w") as archive:
        archive.add(tmp_path / "file", "file")
    with engine(tmp_path / "e", "172.31.243.1/24") as socket:
        monkeypatch.setenv("DOCKER_HOST", socket)
        with registry(tmp_path / "r") as served, registry(tmp_path / "q") as other:
            name = f"{served.host}/site/base"
            docker("import", base, f"{name}:v1")
            said = docker("push", f"{name}:v1")
            # Pushed elsewhere too: that repository's digest is none of this one's.
            docker("tag", f"{name}:v1", f"{other.host}/copy:v1")
            docker("push", "-q", f"{other.host}/copy:v1")
            docker("import", "-c", "LABEL built=1", base, f"{name}:built")
        text = (
            f'schema = 1\n[image.base]\nmachines = ["h20"]\nrepository = "{name}"\n'
            'want = "v1"\nunpinned = "to be resolved"\n'
        )
        path.write_text(text)
        report = lock_images(path, [], write=True)
        assert report.verdict is Verdict.OK, report.findings
        assert report.data["images"][0]["from"] == "the local engine"
        image = read_lock(path).image["base"]
        assert image.digest is not None and f"digest: {image.digest}" in said
        assert image.image_id == docker("image", "inspect", "-f", "{{.Id}}", f"{name}:v1")
        assert not image.unpinned
        _, (row,) = verify_entries(read_lock(path), ["image.base"], ThisMachine(tmp_path))
        assert row.state == "ok"
        other_platform = 'want = "v1"\nplatform = "linux/arm64"'
        for change, verdict, told in (
            ('want = "built"', Verdict.UNKNOWN, "under no digest"),
            ('want = "absent"', Verdict.UNKNOWN, "does not have"),
            (other_platform, Verdict.PROBLEM, "for linux/amd64, the lock requires linux/arm64"),
        ):
            path.write_text(text.replace('want = "v1"', change))
            before = path.read_bytes()
            report = lock_images(path, [], write=True)
            assert report.verdict is verdict, (change, report.findings)
            assert told in report.findings[0].message
            assert path.read_bytes() == before
