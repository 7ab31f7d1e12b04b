"""What an image is built on: the lock's image by digest, or a Debian made here of packages."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reprise.core.children import run_in_session
from reprise.core.errors import CannotTell, OperatorError
from reprise.core.files import sha256_text
from reprise.images.engine import can_build, inspect_image
from reprise.images.files import Kind
from reprise.lock.model import Image, Lock

__all__ = ["Base", "base_of"]

DEBIAN = "reprise/debian:bookworm"
SCRIPT = "scripts/image_base.sh"


@dataclass(frozen=True, slots=True)
class Base:
    """What FROM gets, and the digest that is recorded: a registry's, or the engine's own id."""

    reference: str
    digest: str


def base_of(
    engine: str,
    root: Path,
    kind: Kind,
    lock: Lock,
    named: str,
    on_step: Callable[[str], None] = lambda _: None,
    apt_sources: str = "",
) -> Base:
    """The base for `kind`: `named`, else the lock's image, else (cpu) a Debian made on the spot.

    `apt_sources` is where that Debian comes from: one made from elsewhere is not taken for it.
    Raises OperatorError for a base without digest, or with another one than the lock's, and where
    the engine could not build on the Debian.
    """
    entry = next((image for image in lock.image.values() if kind.machine in image.machines), None)
    if entry is not None:
        return _locked(kind, entry, named)
    if named:
        return _named(engine, named)
    # By its name: every image built on it would carry a label as well.
    name = f"{DEBIAN}-{sha256_text(apt_sources)[:12]}" if apt_sources else DEBIAN
    held = inspect_image(name, engine)
    if held is None:
        can_build(engine)
        on_step("a Debian base from packages")
        _make(engine, root, name, apt_sources)
        held = inspect_image(name, engine)
    if held is None:
        raise CannotTell("image-base.made", name, name=name)
    return Base(name, held.id)


def _locked(kind: Kind, entry: Image, named: str) -> Base:
    where = f"image.{kind.name}"
    if entry.digest is None:
        message = f"the lock has no digest of {entry.repository}:{entry.want}: {entry.unpinned}"
        raise OperatorError("image-base", where, message, "`make image-lock`")
    reference = named or f"{entry.repository}@{entry.digest}"
    if reference.rpartition("@")[2] != entry.digest:
        message = f"expected a base with the locked digest {entry.digest}, found {named}"
        raise OperatorError("image-base", where, message, f"BASE=NAME@{entry.digest}")
    return Base(reference, entry.digest)


def _named(engine: str, named: str) -> Base:
    """A base without a digest must be held here: its id then says which one it was."""
    if "@" in named:
        return Base(named, named.rpartition("@")[2])
    held = inspect_image(named, engine)
    if held is None:
        fix = "name it by its digest: BASE=NAME@sha256:..."
        raise OperatorError(
            "image-base", named, "has no digest, and the engine does not hold it", fix
        )
    return Base(named, held.id)


def _make(engine: str, root: Path, name: str, apt_sources: str) -> None:
    command = ["sh", str(root / SCRIPT), name]
    variables = {**os.environ, "REPRISE_ENGINE": engine, "APT_SOURCES": apt_sources}
    done = run_in_session(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no word"]
        message = next((line for line in lines if line.startswith("error:")), lines[-1])
        fix = "as root, apt-get install mmdebstrap; or name a base: BASE=debian@sha256:..."
        raise OperatorError("image-base", SCRIPT, message.removeprefix("error: "), fix)
