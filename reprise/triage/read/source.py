"""The log files below what the operator names, and their bytes in blocks of whole lines."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["LogFile", "find_logs", "read_blocks"]

BLOCK = 1 << 21
"""Bytes read at a time. A line that is longer is scanned in pieces."""

_OVERLAP = 256
_GZIP = b"\x1f\x8b"
_GZIP_BITS = 31
_OTHER_PACKED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}
_LOG_NAME = re.compile(
    r"(?:\.(?:log|out|err|txt|stdout|stderr)|^dmesg|^messages|^syslog)[\w.-]*?(?:\.\d+)?(?:\.gz)?$"
)
_NO_LOG = re.compile(r"\.(?:jsonl?|ya?ml|toml|py|html|csv|parquet|safetensors|pt|md|lock|bin)$")
_NOT_A_HOST = re.compile(
    r"^(?:logs?|hosts?|session[\w-]*|attempt-?\d*|ray|tmp|old|events|driver|stacks|runs?)$"
)


@dataclass(slots=True)
class LogFile:
    """One file: `name` as it is shown, `host` as far as its folder says, `notes` on its bytes."""

    path: Path
    name: str
    host: str = ""
    notes: list[str] = field(default_factory=list)
    size: int = 0


def find_logs(paths: Sequence[Path], hosts: Mapping[str, str]) -> tuple[list[LogFile], list[str]]:
    """The log files below `paths`, each once, and what could not be read.

    A file that is named is taken whatever its name; in a folder, files whose names look like logs.
    A file's folder names its host, as `hosts` translates it (folder to address).
    """
    found: list[LogFile] = []
    notes: list[str] = []
    seen: set[tuple[int, int]] = set()
    for path in paths:
        for file, below in _walk(path, notes):
            name = below if len(paths) == 1 and below else str(file)
            try:
                status = file.stat()
            except OSError as error:
                notes.append(f"{file}: not read: {error.strerror}")
                continue
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            log = LogFile(file, name, _host(below, hosts), size=status.st_size)
            found.append(log)
    return found, notes


def _walk(path: Path, notes: list[str]) -> Iterator[tuple[Path, str]]:
    if not path.is_dir():
        yield path, path.name
        return

    def refuse(error: OSError) -> None:
        notes.append(f"{error.filename}: not read: {error.strerror}")

    for folder, folders, files in os.walk(path, onerror=refuse):
        folders.sort()
        for name in sorted(files):
            file = Path(folder, name)
            if _LOG_NAME.search(name) and not _NO_LOG.search(name) and file.is_file():
                yield file, str(file.relative_to(path))


def _host(name: str, hosts: Mapping[str, str]) -> str:
    """The host that a file's folders, or its own name, name."""
    folders = Path(name).parts[:-1]
    stem = Path(name).name.split(".")[0]
    for part in (*folders, stem, Path(name).name):
        if part in hosts:
            return hosts[part]
    named = [part for part in folders if not _NOT_A_HOST.match(part)]
    return named[0] if named else ""


def read_blocks(log: LogFile) -> Iterator[tuple[bytes, bool]]:
    """Blocks of whole lines, and whether the block's last line goes on in the next one.

    A piece of a line that goes on begins with the last bytes of the piece before it. Raises
    OSError as the file system does; packed data that ends early, or is damaged, ends the file with
    a note.
    """
    carry = b""
    for chunk in _chunks(log):
        data = carry + chunk
        cut = data.rfind(b"\n") + 1
        if cut:
            yield data[:cut], False
            carry = data[cut:]
        else:
            carry = data
        if len(carry) >= BLOCK:
            yield carry, True
            carry = carry[-_OVERLAP:]
    if carry:
        yield carry, False


def _chunks(log: LogFile) -> Iterator[bytes]:
    with log.path.open("rb") as file:
        head = file.read(6)
        file.seek(0)
        packed = next((name for magic, name in _OTHER_PACKED.items() if head.startswith(magic)), "")
        if packed:
            log.notes.append(f"not read: packed as {packed}; unpack it first")
        elif head.startswith(_GZIP):
            yield from _unpack(iter(lambda: file.read(BLOCK // 4), b""), log)
        else:
            yield from iter(lambda: file.read(BLOCK), b"")


def _unpack(chunks: Iterator[bytes], log: LogFile) -> Iterator[bytes]:
    """The contents of a gzip file of any number of members, as far as they can be read."""
    unpacker = zlib.decompressobj(wbits=_GZIP_BITS)
    begun = False
    for chunk in chunks:
        data = chunk
        while data:
            begun = True
            try:
                out = unpacker.decompress(data, BLOCK)
            except zlib.error as error:
                log.notes.append(f"the packed data is damaged ({error}); read as far as it goes")
                return
            if out:
                yield out
            data = unpacker.unconsumed_tail
            if unpacker.eof:
                # Another member may follow, or the padding of a tape or a file system.
                data = unpacker.unused_data.lstrip(b"\0")
                unpacker, begun = zlib.decompressobj(wbits=_GZIP_BITS), False
                if data and not _GZIP.startswith(data[:2]):
                    log.notes.append("bytes follow the packed data; they were not read")
                    return
    if begun:
        if rest := unpacker.flush():
            yield rest
        log.notes.append("the packed file ends early; read as far as it goes")
