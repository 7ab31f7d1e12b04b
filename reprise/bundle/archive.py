"""The bundle's file format: tar parts in which no bit can change unseen.

Each part is a plain tar file (`tar xf` opens it). Its first member is the part's manifest, named
after its own SHA-256; the manifest lists the files of the whole bundle and the pieces of them that
this part carries, each with its SHA-256. Headers and padding have one possible form, which reading
compares byte by byte. A file that does not fit into a part is cut into pieces.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from reprise.bundle.manifest import Damage, Item, Manifest, Piece, parse
from reprise.core.errors import OperatorError
from reprise.core.files import writing

__all__ = [
    "Sink",
    "hashed",
    "plan",
    "read_manifest",
    "read_part",
    "write_part",
]

_BLOCK = 512
_READ = 2**20
_END = bytes(2 * _BLOCK)
_MANIFEST = re.compile(r"manifest-([0-9a-f]{64})\.json")
# No real manifest comes near it: what claims more is not ours.
_MANIFEST_LIMIT = 64 * 2**20

# Called for each piece with the path and offset; gives the function that takes its bytes.
Sink = Callable[[Piece], Callable[[bytes], None]]


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict")


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)


def plan(items: Sequence[tuple[str, int]], part_size: int | None) -> list[list[Piece]]:
    """Cut files of (path, bytes) into parts of at most `part_size` bytes each; hashes come later.

    Raises OperatorError when a part of that size would hold little but its manifest.
    """
    if part_size is None:
        return [[Piece(path, 0, size) for path, size in items]]
    # Of each part: the list of all files, its own pieces, headers and the end.
    listing = sum(len(path) + 120 for path, _ in items)
    room = part_size - listing - 16 * _BLOCK
    if room < part_size / 2:
        fix = f"use at least {2 * (listing + 16 * _BLOCK) // 2**20 + 1}M"
        message = f"parts of {part_size} bytes leave no room beside their list of files"
        raise OperatorError("part-size", "--part-size", message, fix)
    parts: list[list[Piece]] = [[]]
    left = room
    for path, size in items:
        overhead = 3 * len(path) + 6 * _BLOCK
        offset = 0
        while True:
            if left < overhead + min(size - offset, 2**16):
                parts.append([])
                left = room
            take = min(size - offset, left - overhead)
            parts[-1].append(Piece(path, offset, take))
            left -= overhead + take
            offset += take
            if offset >= size:
                break
    return parts


def write_part(
    target: Path,
    manifest: Manifest,
    sources: dict[str, Path],
    on_bytes: Callable[[int], None] = lambda _: None,
) -> None:
    """Write one part, whole or not at all, in constant memory.

    `sources` says where each file lies. Raises OperatorError when a file changed since it was
    hashed.
    """
    body = manifest.to_bytes()
    with writing(target) as out:
        out.write(_header(f"manifest-{hashlib.sha256(body).hexdigest()}.json", len(body)))
        out.write(body + _padding(len(body)))
        for piece in manifest.pieces:
            out.write(_header(piece.member(manifest.whole(piece)), piece.size))
            _copy(sources[piece.path], piece, out, on_bytes)
            out.write(_padding(piece.size))
        out.write(_END)


def _copy(source: Path, piece: Piece, out: IO[bytes], on_bytes: Callable[[int], None]) -> None:
    digest = hashlib.sha256()
    with source.open("rb") as file:
        file.seek(piece.offset)
        for block in _blocks(file, piece.size):
            digest.update(block)
            out.write(block)
            on_bytes(len(block))
    if digest.hexdigest() != piece.sha256:
        fix = "leave the file alone while the bundle is written, and repeat the command"
        raise OperatorError("bundle-source", str(source), "changed while it was read", fix)


def _blocks(file: IO[bytes], size: int) -> Iterator[bytes]:
    """`size` bytes of `file` in blocks; fewer when the file ends before."""
    while size > 0 and (block := file.read(min(size, _READ))):
        size -= len(block)
        yield block


def read_part(path: Path, sink: Sink | None = None) -> Manifest:
    """Read one part whole, check every bit of it, and hand its pieces to `sink`.

    Bytes reach the sink before they are known to be right: use them only when this returns.
    Raises OperatorError naming the part when anything in it is not what it was.
    """
    try:
        with path.open("rb") as file:
            return _read(file, sink)
    except Damage as damage:
        raise _damaged(path, damage) from damage


def read_manifest(path: Path) -> Manifest:
    """The manifest of a part, which vouches for itself; the rest of the part is not read.

    Raises OperatorError naming the part.
    """
    try:
        with path.open("rb") as file:
            return _read_manifest(file)
    except Damage as damage:
        raise _damaged(path, damage) from damage


def _damaged(path: Path, damage: Damage) -> OperatorError:
    fix = f"copy {path.name} again from where the bundle was made"
    message = f"is damaged or no part of a bundle: {damage}"
    return OperatorError("bundle-damaged", path.name, message, fix)


def _read(file: IO[bytes], sink: Sink | None) -> Manifest:
    manifest = _read_manifest(file)
    for piece in manifest.pieces:
        name = piece.member(manifest.whole(piece))
        _expect(file, _header(name, piece.size), f"the header of {name}")
        digest = hashlib.sha256()
        take = sink(piece) if sink is not None else None
        got = 0
        for block in _blocks(file, piece.size):
            digest.update(block)
            got += len(block)
            if take is not None:
                take(block)
        if got != piece.size:
            raise Damage(f"it ends within {name}")
        if digest.hexdigest() != piece.sha256:
            raise Damage(f"{name} has another sha256 than its manifest says")
        _expect(file, _padding(piece.size), f"the padding of {name}")
    _expect(file, _END, "its end")
    if file.read(1):
        raise Damage("something follows its end")
    return manifest


def _expect(file: IO[bytes], wanted: bytes, what: str) -> None:
    if file.read(len(wanted)) != wanted:
        raise Damage(f"{what} is not as it was written")


def _read_manifest(file: IO[bytes]) -> Manifest:
    header = file.read(_BLOCK)
    try:
        info = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
    except (tarfile.TarError, UnicodeDecodeError):
        raise Damage("it does not begin with a manifest") from None
    named = _MANIFEST.fullmatch(info.name)
    if named is None or info.size > _MANIFEST_LIMIT or _header(info.name, info.size) != header:
        raise Damage("it does not begin with a manifest")
    body = file.read(info.size)
    if hashlib.sha256(body).hexdigest() != named[1]:
        raise Damage("its manifest has another sha256 than its name says")
    _expect(file, _padding(info.size), "the padding of its manifest")
    return parse(body)


def hashed(path: str, source: Path, pieces: Sequence[Piece]) -> tuple[Item, list[Piece]]:
    """The file's item and its pieces with their hashes, in one reading.

    `pieces` cover the file in order. Raises OperatorError when its size changed meanwhile.
    """
    whole = hashlib.sha256()
    done: list[Piece] = []
    with source.open("rb") as file:
        for piece in pieces:
            digest = hashlib.sha256()
            for block in _blocks(file, piece.size):
                digest.update(block)
                whole.update(block)
            done.append(replace(piece, sha256=digest.hexdigest()))
    size = sum(piece.size for piece in pieces)
    return Item(path, size, whole.hexdigest()), done
