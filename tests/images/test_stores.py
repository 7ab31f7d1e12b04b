"""One image in docker's two stores, and digests in files of any encoding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file
from reprise.core.findings import Verdict
from reprise.hub.registry import layers_digest
from reprise.images.carry import load_image
from reprise.images.judge import judge_images, parse_held
from reprise.images.verify import verify_image
from reprise.lock.model import Image
from reprise.lock.read import read_lock
from reprise.lock.rows import ThisMachine

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ["sha256:" + "1" * 64, "sha256:" + "2" * 64]
CLASSIC, CONTAINERD = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def engine(folder: Path, monkeypatch: pytest.MonkeyPatch, identity: str, **more: Any) -> None:
    """An engine that has one image, as `docker image inspect` prints it."""
    about = {"Id": identity, "Os": "linux", "Architecture": "amd64",
             "RootFS": {"Type": "layers", "Layers": LAYERS}} | more  # fmt: skip
    (folder / "image.json").write_text(json.dumps([about]))
    script = folder / "engine"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = load ] && {{ echo "Loaded image: x"; exit 0; }}\n'
        f'cat "{folder}/image.json"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("REPRISE_ENGINE", str(script))


def image(**more: Any) -> Image:
    return Image(machines=("h20",), repository="a/b", want="t", digest="sha256:" + "d" * 64, **more)


@pytest.mark.parametrize(
    ("identity", "locked", "state"),
    [
        (CLASSIC, {"image_id": CLASSIC}, "ok"),
        (CONTAINERD, {"image_id": CLASSIC, "layers_sha256": layers_digest(LAYERS)}, "ok"),
        ("sha256:" + "d" * 64, {"image_id": CLASSIC}, "ok"),
        (CONTAINERD, {"image_id": CLASSIC}, "unknown"),
        (CONTAINERD, {"image_id": CLASSIC, "layers_sha256": layers_digest(LAYERS[:1])}, "unknown"),
    ],
)
def test_the_locked_image_in_any_store(
    identity: str, locked: dict[str, str], state: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # Loaded from an archive: the engine knows the tag and no digest of a registry.
    engine(tmp_path, monkeypatch, identity)
    (tmp_path / "engine").write_text(
        f'#!/bin/sh\ncase $3 in *@*) echo "no such image" >&2; exit 1 ;; esac\n'
        f'cat "{tmp_path}/image.json"\n'
    )
    here = ThisMachine(tmp_path, provenance=tmp_path / "none")
    assert verify_image("image.base", image(**locked), here).state == state


def test_hosts_with_different_stores_have_the_same_image() -> None:
    layers = json.dumps(LAYERS)
    hosts = {}
    for host, identity, found in (
        ("node1", CLASSIC, layers), ("node2", CONTAINERD, layers), ("node3", CONTAINERD, "[]"),
    ):  # fmt: skip
        held = parse_held(f"= id {identity}\n= layers {found}\n= provenance {{}}\n")
        assert held is not None
        hosts[host] = held
    report = judge_images(read_lock(ROOT / "versions.lock"), "h20", "reprise-h20", hosts)
    assert [item.where for item in report.errors() if item.rule == "image-id"] == ["node3"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("upper", [False, True])
def test_a_digest_in_any_encoding(
    encoding: str, upper: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(tmp_path, monkeypatch, CLASSIC)
    file = tmp_path / "h20.tar"
    file.write_bytes(b"an archive")
    digest = sha256_file(file)
    text = f"{digest.upper() if upper else digest}  h20.tar\r\n"
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    side = tmp_path / "h20.tar.sha256"
    side.write_bytes((mark + text).encode(encoding))
    assert load_image(file).verdict is Verdict.OK
    side.write_bytes((mark + text.replace(text[:4], "0000")).encode(encoding))
    with pytest.raises(OperatorError, match="was not loaded"):
        load_image(file)


@pytest.mark.parametrize("content", [b"", b"\n", b"see elsewhere", b"\xff\xfe", b"\xff" * 64])
def test_a_file_without_a_digest_is_unknown(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(tmp_path, monkeypatch, CLASSIC)
    (tmp_path / "h20.tar").write_bytes(b"an archive")
    (tmp_path / "h20.tar.sha256").write_bytes(content)
    assert load_image(tmp_path / "h20.tar").verdict is Verdict.UNKNOWN
