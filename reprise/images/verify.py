"""Does the container engine hold the locked image, or do we run in it?"""

from __future__ import annotations

from pathlib import Path

import orjson

from reprise.images.engine import inspect_image
from reprise.lock.model import Image
from reprise.lock.rows import Row, Site, unpinned

__all__ = ["verify_image"]


def verify_image(name: str, image: Image, site: Site) -> Row:
    """The image that this runs in, by its provenance file; else what the engine holds.

    Raises CannotTell when no engine answers.
    """
    if image.digest is None:
        return unpinned(name, image)
    if site.provenance.is_file():
        return _inside(name, image, site.provenance)
    reference = f"{image.repository}@{image.digest}"
    row = Row(name, "ok", image.digest, image.digest)
    held = inspect_image(reference)
    if held is None:
        held = inspect_image(f"{image.repository}:{image.want}")
        if held is None:
            row.state, row.found, row.message = "missing", "", "the engine does not hold it"
            row.fix = f"pull {reference}"
            return row
        if not (image.image_id and held.id == image.image_id):
            row.state = "drift" if held.digests else "unknown"
            row.found = ", ".join(held.digests) or held.id
            row.message = "" if held.digests else f"loaded from an archive, known by id {held.id}"
            row.fix = f"pull {reference}"
    if held.platform != "/".join(image.platform.split("/")[:2]):
        row.state, row.expected, row.found = "drift", image.platform, held.platform
    return row


def _inside(name: str, image: Image, provenance: Path) -> Row:
    """What the image that this runs in says it was built on."""
    try:
        found = str(orjson.loads(provenance.read_bytes())["base_digest"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        message = f"{provenance} names no base_digest"
        return Row(
            name, "unknown", image.digest or "", message=message, fix="build the image again"
        )
    state = "ok" if found == image.digest else "drift"
    return Row(name, state, image.digest or "", found, fix="start the image that is locked")
