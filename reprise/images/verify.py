"""Check that the container engine has the locked image, or that this process runs in it."""

from __future__ import annotations

from pathlib import Path

import orjson

from reprise.hub.registry import layers_digest
from reprise.images.engine import HeldImage, inspect_image
from reprise.lock.model import Image
from reprise.lock.rows import Row, ThisMachine, unpinned

__all__ = ["verify_image"]


def verify_image(name: str, image: Image, here: ThisMachine) -> Row:
    """The image of this container, by its provenance file; else the image in the engine.

    Raises CannotTell when no engine answers.
    """
    if image.digest is None:
        return unpinned(name, image)
    if here.provenance.is_file():
        return _inside(name, image, here.provenance)
    reference = f"{image.repository}@{image.digest}"
    row = Row(name, "ok", image.digest, image.digest)
    held = inspect_image(reference)
    if held is None:
        held = inspect_image(f"{image.repository}:{image.want}")
        if held is None:
            row.state, row.found, row.message = "missing", "", "the engine does not have it"
            row.fix = f"pull {reference}"
            return row
        if not _same(image, held):
            row.state = "drift" if held.digests else "unknown"
            row.found = ", ".join(held.digests) or held.id
            row.message = (
                "" if held.digests else f"loaded from an archive, identified by id {held.id}"
            )
            row.fix = f"pull {reference}"
    if held.platform != "/".join(image.platform.split("/")[:2]):
        row.state, row.expected, row.found = "drift", image.platform, held.platform
    return row


def _same(image: Image, held: HeldImage) -> bool:
    """Is it the locked image? By the classic store's id, the containerd store's, or the layers."""
    if held.id in (image.image_id, image.digest):
        return True
    return bool(held.layers) and image.layers_sha256 == layers_digest(held.layers)


def _inside(name: str, image: Image, provenance: Path) -> Row:
    """The base that the image of this container records."""
    try:
        found = str(orjson.loads(provenance.read_bytes())["base_digest"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        message = f"{provenance} has no base_digest"
        return Row(
            name, "unknown", image.digest or "", message=message, fix="build the image again"
        )
    state = "ok" if found == image.digest else "drift"
    return Row(name, state, image.digest or "", found, fix="start the locked image")
