"""Which files were hashed before, so that an unchanged one is not read again."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprise.core.errors import OperatorError
from reprise.core.files import dump_json

__all__ = ["Verified", "git_blob_id", "hash_file"]

CHUNK = 8 << 20
_WRITING = threading.Lock()


def git_blob_id(path: Path) -> str:
    """The id (SHA-1, 40 hex digits) that git gives to a small file's bytes."""
    data = path.read_bytes()
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()


def hash_file(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """The SHA-256 of a file (64 hex digits), read in pieces of 8 MiB; `progress` gets their bytes.

    Raises OSError as the file system gives it.
    """
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
            if progress is not None:
                progress(len(piece))
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Verified:
    """A small JSON file: for each path the digest that it had at a size, time and inode.

    A file that changes without changing any of the three is not noticed: `deep` reads it anyway.
    """

    store: Path

    def sha256(
        self, path: Path, deep: bool = False, progress: Callable[[int], None] | None = None
    ) -> str:
        """The digest of `path`, from memory when size, mtime and inode are as they were.

        Raises OperatorError when the file cannot be read.
        """
        key = str(path.absolute())
        try:
            stamp = _stamp(path)
            known = self._read().get(key)
            if not deep and known is not None and known.get("stamp") == stamp:
                return str(known["sha256"])
            digest = hash_file(path, progress)
            if _stamp(path) == stamp:
                self._write(key, {"stamp": stamp, "sha256": digest})
        except OSError as error:
            raise OperatorError(
                "data-file.cannot-read", str(path), strerror=error.strerror
            ) from None
        return digest

    def remember(self, path: Path, sha256: str) -> None:
        """Note the digest of a file that was hashed while it was written."""
        self._write(str(path.absolute()), {"stamp": _stamp(path), "sha256": sha256})

    def _read(self) -> dict[str, Any]:
        try:
            value = json.loads(self.store.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    def _write(self, key: str, entry: dict[str, Any]) -> None:
        """Failing to remember only costs a hash the next time."""
        try:
            self.store.parent.mkdir(parents=True, exist_ok=True)
            with _WRITING:
                dump_json(self.store, self._read() | {key: entry})
        except OSError:
            return


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]
