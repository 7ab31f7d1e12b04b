"""Images as files, for sites without a registry: saved whole, loaded only when whole."""

from __future__ import annotations

import re
import subprocess
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Sequence
from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file, write_text
from reprise.core.findings import Report
from reprise.images.engine import HeldImage, find_engine, held_with_label, inspect_image
from reprise.images.files import Kind
from reprise.lock.model import Image, Lock, Machine
from reprise.lock.read import machine_hash

__all__ = [
    "archive_images",
    "built_for",
    "images_to_archive",
    "load_image",
    "newest",
    "save_image",
]

_SHA256 = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{64}(?![0-9a-fA-F])")


def built_for(engine: str, lock: Lock, machine: Machine) -> HeldImage | None:
    """The newest image here that was built for `machine` from this state of the lock."""
    wanted = (f"io.reprise.machine={machine}", f"io.reprise.lock={machine_hash(lock, machine)}")
    held = held_with_label(engine, *wanted)
    return held[0] if held else None


def newest(engine: str, lock: Lock, kind: Kind) -> str:
    """The name of the newest image of `kind` from this state of the lock.

    Raises OperatorError when there is none.
    """
    held = built_for(engine, lock, kind.machine)
    if held is None:
        raise OperatorError("image-held.not-built", kind.name, machine=kind.machine, name=kind.name)
    return held.tags[0]


def images_to_archive(lock: Lock, name: str, image: Image) -> tuple[str, list[str]]:
    """The engine, and its images: the locked image by its digest, and what was built on that.

    Raises OperatorError when it has neither, CannotTell when no engine answers.
    """
    engine = find_engine()
    reference = f"{image.repository}@{image.digest}"
    held: list[str] = []
    if image.digest is not None and inspect_image(reference, engine) is not None:
        held.append(reference)
    for machine in image.machines:
        if (built := built_for(engine, lock, machine)) is not None:
            held.append(built.tags[0])
    if not held:
        where = f"image.{name}"
        if image.digest is None:
            raise OperatorError("bundle-image.no-digest", where)
        raise OperatorError(
            "bundle-image.absent", where, reference=reference, engine=Path(engine).name
        )
    return engine, held


def archive_images(lock: Lock, name: str, image: Image, target: Path) -> None:
    """Archive the locked image, under the tag it is wanted by, and what was built here on it.

    Layers that both have are in the archive once. Raises OperatorError when the engine has neither.
    """
    engine, held = images_to_archive(lock, name, image)
    locked, wanted = f"{image.repository}@{image.digest}", f"{image.repository}:{image.want}"
    if locked in held:
        _engine([engine, "tag", locked, wanted], locked)
    chosen = [wanted if reference == locked else reference for reference in held]
    _saved(engine, chosen, target, f"image.{name}")


def _saved(engine: str, images: Sequence[str], target: Path, where: str) -> None:
    """Let the engine write `images` to `target`, whole or not at all."""
    half = target.with_name(f".{target.name}.part")
    half.unlink(missing_ok=True)
    try:
        _engine([engine, "save", "--output", str(half), *images], where)
        half.rename(target)
    finally:
        half.unlink(missing_ok=True)


def save_image(image: str, target: Path) -> Report:
    """Write `image` as the engine archives it to `target`, and its SHA-256 to `target`.sha256.

    `data`: `image`, `id`, `file`, `bytes`, `sha256`. Raises OperatorError for a file that
    exists and for an image that does not.
    """
    engine = find_engine()
    held = inspect_image(image, engine)
    if held is None:
        raise OperatorError("image-held.absent", image)
    if target.exists():
        raise OperatorError("image-file.exists", str(target))
    _saved(engine, [image], target, image)
    digest = sha256_file(target)
    write_text(_side(target), f"{digest}  {target.name}\n")
    report = Report("image save")
    report.passed("image-save")
    report.data = {"image": image, "id": held.id, "file": str(target)}
    report.data |= {"bytes": target.stat().st_size, "sha256": digest}
    return report


def load_image(file: Path) -> Report:
    """Load an archive into the engine if it has the SHA-256 of its .sha256 file.

    Without that file the archive is loaded and the report unknown. `data`: `loaded`, the names and
    ids that the engine prints. Raises OperatorError for a damaged archive, which is not loaded.
    """
    engine = find_engine()
    if not file.is_file():
        raise OperatorError("image-file.missing", str(file))
    report = Report("image load")
    side = _side(file)
    wanted = _digest_in(side) if side.is_file() else None
    if side.is_file() and wanted is None:
        report.unknown("image-sha256.unreadable", str(side))
    elif wanted is not None:
        found = sha256_file(file)
        if wanted != found:
            raise OperatorError(
                "image-file.sha256", str(file), found=found, name=side.name, expected=wanted
            )
        report.passed("image-sha256")
    else:
        report.unknown("image-sha256.absent", str(file), name=side.name)
    said = _engine([engine, "load", "--input", str(file)], str(file))
    report.data = {
        "loaded": [line.partition(": ")[2] for line in said.splitlines() if ": " in line]
    }
    report.passed("image-load")
    return report


def _side(file: Path) -> Path:
    return file.with_name(f"{file.name}.sha256")


def _digest_in(side: Path) -> str | None:
    """The one SHA-256 in a side file of any encoding (PowerShell writes UTF-16); else None."""
    data = side.read_bytes()
    wide = data.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    text = data.decode("utf-16" if wide else "utf-8", "replace")
    found = {match.lower() for match in _SHA256.findall(text)}
    return found.pop() if len(found) == 1 else None


def _engine(command: list[str], where: str) -> str:
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["the engine failed"])[-1]
        raise OperatorError("image-engine.failed", where, reason=reason)
    return done.stdout
