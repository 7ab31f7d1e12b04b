"""What a part of a bundle says of the bundle and of itself."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

__all__ = ["FORMAT", "Damage", "Item", "Manifest", "Piece", "parse"]

FORMAT = "reprise-bundle-1"


class Damage(Exception):
    """A part is not what it says; turned into an OperatorError that names the part."""


@dataclass(frozen=True, slots=True)
class Item:
    """A file of the bundle: its path in it, and its size in bytes and SHA-256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of bytes of one file, as one part carries it."""

    path: str
    offset: int
    size: int
    sha256: str = ""

    def member(self, whole: bool) -> str:
        """The tar member's name; pieces of one file sort in their order."""
        return f"files/{self.path}" if whole else f"files/{self.path}@{self.offset:015d}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a part says of the bundle and of itself; `part` counts from 1."""

    part: int
    parts: int
    items: tuple[Item, ...]
    pieces: tuple[Piece, ...]
    about: dict[str, Any]

    @property
    def bundle(self) -> str:
        """The bundle's identity: the digest of its files' list and of what it says of itself."""
        body = {"files": [[i.path, i.size, i.sha256] for i in self.items], "about": self.about}
        return hashlib.sha256(_canonical(body)).hexdigest()

    def to_bytes(self) -> bytes:
        """The manifest in its one form."""
        return _canonical(
            {
                "format": FORMAT,
                "bundle": self.bundle,
                "part": self.part,
                "parts": self.parts,
                "about": self.about,
                "files": [[i.path, i.size, i.sha256] for i in self.items],
                "pieces": [[p.path, p.offset, p.size, p.sha256] for p in self.pieces],
            }
        )

    def whole(self, piece: Piece) -> bool:
        """Whether `piece` is all of its file."""
        return any(i.path == piece.path and i.size == piece.size for i in self.items)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def parse(body: bytes) -> Manifest:
    """A manifest from its bytes. Raises Damage when it is none, or contradicts itself."""
    try:
        raw = json.loads(body)
        if raw["format"] != FORMAT:
            raise Damage(f"its format is {raw['format']}, expected {FORMAT}")
        items = tuple(Item(str(p), int(s), str(h)) for p, s, h in raw["files"])
        pieces = tuple(Piece(str(p), int(o), int(s), str(h)) for p, o, s, h in raw["pieces"])
        manifest = Manifest(int(raw["part"]), int(raw["parts"]), items, pieces, dict(raw["about"]))
    except (KeyError, TypeError, ValueError) as error:
        raise Damage(f"its manifest cannot be read: {error}") from None
    sizes = {item.path: item.size for item in items}
    for path in sizes:
        if not path or any(part in ("", ".", "..") for part in path.split("/")):
            raise Damage(f"its manifest names a path that leads out of the bundle: {path!r}")
    for piece in pieces:
        inside = piece.offset >= 0 and piece.offset + piece.size <= sizes.get(piece.path, -1)
        if not inside or piece.size < 0:
            raise Damage(f"its manifest names a piece that is not of a file: {piece.path!r}")
    if manifest.bundle != raw.get("bundle"):
        raise Damage("its manifest belongs to another bundle")
    return manifest
