"""The ids of one image archive in a real containerd, as docker's containerd store gives them.

Its client here is `ctr`: this docker is older than docker's own store for images in containerd, and
there is no nerdctl. So what the engine's inspect would print is put together from containerd's
content, and `lock verify` reads that.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprise.hub.registry import layers_digest
from reprise.images.verify import verify_image
from reprise.lock.rows import ThisMachine

from .test_stores import engine, image

pytestmark = [
    pytest.mark.containers,
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd needs root"),
    pytest.mark.skipif(shutil.which("containerd") is None, reason="containerd is not installed"),
    pytest.mark.skipif(shutil.which("ctr") is None, reason="ctr is not installed"),
]
TAG = "registry.local/a/b:t"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def tar_of(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def saved_image(target: Path, *layers: bytes) -> str:
    """An archive as `docker save` of the classic store writes it; returns the image's id there."""
    config = json.dumps({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
    }).encode()  # fmt: skip
    identity = digest(config)
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": f"{identity[7:]}.json", "RepoTags": [TAG], "Layers": names}]
    files = dict(zip(names, layers, strict=True)) | {f"{identity[7:]}.json": config}
    target.write_bytes(tar_of(files | {"manifest.json": json.dumps(manifest).encode()}))
    return identity


@pytest.fixture(scope="module")
def ctr() -> Iterator[list[str]]:
    """A containerd of the test's own; yields the words of its client."""
    # The path of a socket is limited to 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="ctrd-", dir="/tmp"))
    socket = folder / "s"
    (folder / "c.toml").write_text(
        'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
        f'root = "{folder}/root"\nstate = "{folder}/state"\n[grpc]\naddress = "{socket}"\n'
    )
    with (folder / "log").open("w") as log:
        daemon = subprocess.Popen(
            ["containerd", "--config", str(folder / "c.toml")], stdout=log, stderr=log
        )
    words = ["ctr", "--address", str(socket), "--namespace", "reprise"]
    deadline = time.monotonic() + 60
    while subprocess.run([*words, "version"], capture_output=True, check=False).returncode:
        assert daemon.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.1)
    yield words
    daemon.terminate()
    daemon.wait(30)
    shutil.rmtree(folder, ignore_errors=True)


def held(ctr: list[str], archive: Path) -> dict[str, Any]:
    """Load the archive, and give what an engine on this store prints of it."""

    def ask(*words: str) -> str:
        return subprocess.check_output([*ctr, *words], text=True)

    ask("images", "import", "--no-unpack", str(archive))
    lines = [line.split() for line in ask("images", "ls").splitlines()[1:]]
    (target,) = [words[2] for words in lines if words[0] == TAG]
    manifest = json.loads(ask("content", "get", target))
    if "manifests" in manifest:
        manifest = json.loads(ask("content", "get", manifest["manifests"][0]["digest"]))
    config = manifest["config"]["digest"]
    layers = json.loads(ask("content", "get", config))["rootfs"]["diff_ids"]
    return {"Id": target, "config": config, "RootFS": {"Type": "layers", "Layers": layers}}


def test_a_loaded_image_has_another_id_and_the_same_layers(
    ctr: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = tar_of({"a": b"first"}), tar_of({"b": b"second"})
    classic = saved_image(tmp_path / "image.tar", *layers)
    found = held(ctr, tmp_path / "image.tar")
    # What the lock's two keys rely on.
    assert found["Id"] != classic
    assert found["config"] == classic
    assert found["RootFS"]["Layers"] == [digest(layer) for layer in layers]

    engine(tmp_path, monkeypatch, found["Id"], RootFS=found["RootFS"])
    (tmp_path / "engine").write_text(
        '#!/bin/sh\ncase $3 in *@*) echo "no such image" >&2; exit 1 ;; esac\n'
        f'cat "{tmp_path}/image.json"\n'
    )
    here = ThisMachine(tmp_path, provenance=tmp_path / "none")
    locked = {"image_id": classic, "layers_sha256": layers_digest(found["RootFS"]["Layers"])}
    assert verify_image("image.base", image(**locked), here).state == "ok"
    assert verify_image("image.base", image(image_id=classic), here).state == "unknown"


def test_another_image_under_the_same_tag_is_not_the_locked_one(
    ctr: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = [digest(tar_of({"a": b"first"}))]
    classic = saved_image(tmp_path / "other.tar", tar_of({"a": b"changed"}))
    found = held(ctr, tmp_path / "other.tar")
    assert found["config"] == classic
    engine(tmp_path, monkeypatch, found["Id"], RootFS=found["RootFS"])
    (tmp_path / "engine").write_text(
        '#!/bin/sh\ncase $3 in *@*) echo "no such image" >&2; exit 1 ;; esac\n'
        f'cat "{tmp_path}/image.json"\n'
    )
    locked = {"image_id": "sha256:" + "a" * 64, "layers_sha256": layers_digest(layers)}
    here = ThisMachine(tmp_path, provenance=tmp_path / "none")
    assert verify_image("image.base", image(**locked), here).state != "ok"
