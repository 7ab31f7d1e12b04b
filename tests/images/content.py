"""What is in an image, file by file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.images.bed import Engine


@contextlib.contextmanager
def saved(engine: Engine, image: str) -> Iterator[tarfile.TarFile]:
    """The image as the engine archives it: every layer, also what a later one hides."""
    with tempfile.TemporaryDirectory(dir=engine.folder) as folder:
        file = Path(folder) / "image.tar"
        engine.docker("save", "--output", str(file), image)
        with tarfile.open(file) as archive:
            yield archive


def layers(archive: tarfile.TarFile, below: int = 0) -> Iterator[tarfile.TarFile]:
    """The layers of a saved image, without its lowest `below`."""
    manifest = json.loads(read(archive, archive.getmember("manifest.json")))[0]
    for name in manifest["Layers"][below:]:
        with tarfile.open(fileobj=archive.extractfile(name)) as layer:
            yield layer


def read(archive: tarfile.TarFile, item: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(item)
    assert file is not None
    return file.read()


def files(engine: Engine, image: str, base: str) -> dict[str, tuple[object, ...]]:
    """What an image adds to its base: path to type, mode, owner, link and content. No times."""
    told = engine.docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", base)
    found: dict[str, tuple[object, ...]] = {}
    with saved(engine, image) as archive:
        for layer in layers(archive, len(json.loads(told))):
            for item in layer:
                content = read(layer, item) if item.isreg() else b""
                digest = hashlib.sha256(content).hexdigest()
                owner = (item.uid, item.gid)
                found[item.name] = (item.type, oct(item.mode), owner, item.linkname, digest)
    return found


def left_in(added: dict[str, tuple[object, ...]], places: tuple[str, ...]) -> list[str]:
    """What lies in `places`: folders and marks of removed files are no content."""
    return [
        path
        for path, about in added.items()
        if path.startswith(places) and about[0] != tarfile.DIRTYPE and "/.wh." not in path
    ]


def holding(engine: Engine, image: str, words: list[bytes]) -> list[str]:
    """Where in an image, its history and its labels included, one of `words` stands."""
    found: list[str] = []
    with saved(engine, image) as archive:
        for item in archive:
            if item.name.endswith(".json"):
                text = read(archive, item)
                found += [item.name for word in words if word in text]
        for layer in layers(archive):
            for item in (item for item in layer if item.isreg()):
                text = read(layer, item)
                found += [item.name for word in words if word in text]
    return found
