"""The support bundle: a run's logs and facts in one archive, with secrets removed."""

from __future__ import annotations

import gzip
import io
import os
import platform
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from reprise.core.files import writing
from reprise.triage.secrets import Masker

__all__ = ["Packed", "pack"]

# What a run's folder holds beside its logs that helps another person.
_NAMES = (
    "run.json",
    "events.jsonl",
    "config.yaml",
    "versions.lock",
    "verdict.json",
    "triage.json",
    "doctor.json",
    "command*.txt",
    "runtime_env*.json",
    "report.html",
    "metrics/*.jsonl",
)
_LEFT_OUT = ("secrets", ".env")
_WHOLE = 64 << 20
_PART = 16 << 20


@dataclass(frozen=True, slots=True)
class Packed:
    """How many files were packed, the archive's bytes, and what was left out or cut."""

    files: int
    size: int
    left_out: tuple[str, ...]


def pack(
    run: Path, target: Path, triage: Mapping[str, Any], masker: Masker, extra: Sequence[Path]
) -> Packed:
    """Write `target`, a tar.gz of the run's texts as `masker` leaves them.

    Of a log above 64 MiB the first and the last 16 MiB are kept. Raises OSError as the file system
    does; a target that cannot be finished leaves no file.
    """
    left_out: list[str] = []
    base = f"support-{run.name}"
    with writing(target, mode=0o600) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        _add(archive, f"{base}/triage.json", _json(triage, masker))
        _add(archive, f"{base}/machine.json", _json(_machine(), masker))
        files = 2
        for path, name in [*_members(run), *((item, item.name) for item in extra)]:
            if name == "triage.json" or not path.is_file():
                continue
            if any(word in path.name for word in _LEFT_OUT):
                left_out.append(f"{path}: left out: it holds secrets")
                continue
            try:
                cut = _add_masked(archive, f"{base}/{name}", path, masker)
            except OSError as error:
                left_out.append(f"{path}: left out: {error.strerror or error}")
                continue
            files += 1
            if cut:
                left_out.append(f"{path}: {cut} bytes in its middle were left out")
    return Packed(files, target.stat().st_size, tuple(left_out))


def _add_masked(archive: tarfile.TarFile, name: str, path: Path, masker: Masker) -> int:
    """Add a file without its secrets; how many bytes were left out of its middle."""
    with tempfile.TemporaryFile() as masked:
        cut = _mask_file(path, masked, masker)
        info = tarfile.TarInfo(name)
        info.size = masked.tell()
        info.mtime = int(path.stat().st_mtime)
        masked.seek(0)
        archive.addfile(info, masked)
    return cut


def _members(run: Path) -> Iterator[tuple[Path, str]]:
    seen: set[Path] = set()
    for pattern in _NAMES:
        for path in sorted(run.glob(pattern)):
            if path not in seen:
                seen.add(path)
                yield path, str(path.relative_to(run))
    for folder, folders, names in os.walk(run / "logs"):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_symlink():
                continue
            relative = str(path.relative_to(run))
            # Packed logs are unpacked to be masked, and lose their ending.
            yield path, relative.removesuffix(".gz")


def _mask_file(path: Path, out: IO[bytes], masker: Masker) -> int:
    """Write the masked text of `path`; how many bytes were left out of its middle."""
    size = path.stat().st_size
    packed = path.suffix == ".gz"
    # A packed file is read from its begin only; a plain one also from its end.
    cut = max(0, size - 2 * _PART) if size > _WHOLE and not packed else 0
    parts = [(0, _PART), (size - _PART, _PART)] if cut else [(0, _WHOLE)]
    with gzip.open(path, "rb") if packed else path.open("rb") as file:
        for begin, length in parts:
            if begin:
                file.seek(begin)
                out.write(b"\n[... left out ...]\n")
            _mask_part(file, length, out, masker)
    return cut


def _mask_part(
    file: IO[bytes] | gzip.GzipFile, length: int, out: IO[bytes], masker: Masker
) -> None:
    """Mask whole lines at a time, a block of them together for keys of several lines."""
    left = length
    carry = b""
    while left > 0:
        try:
            chunk = file.read(min(1 << 20, left))
        except (EOFError, gzip.BadGzipFile):
            break
        if not chunk:
            break
        left -= len(chunk)
        data = carry + chunk
        cut = data.rfind(b"\n") + 1
        begin = data.rfind(b"-----BEGIN", 0, cut)
        if begin >= 0 and b"-----END" not in data[begin:cut] and len(data) < 1 << 22:
            cut = begin
        if not cut and len(data) < 1 << 22:
            carry = data
            continue
        cut = cut or len(data)
        out.write(_masked(data[:cut], masker))
        carry = data[cut:]
    out.write(_masked(carry, masker))


def _masked(data: bytes, masker: Masker) -> bytes:
    text = data.decode("utf-8", errors="surrogateescape")
    return masker.mask(text).encode("utf-8", errors="surrogateescape")


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def _json(value: Mapping[str, Any], masker: Masker) -> bytes:
    raw = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
    return masker.mask(raw.decode()).encode() + b"\n"


def _machine() -> dict[str, Any]:
    """Facts of this machine; its name stays out."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "memory_bytes": pages * size,
    }
