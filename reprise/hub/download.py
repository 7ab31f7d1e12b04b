"""Download one file over HTTP: resumed after an interruption, hashed while it streams.

huggingface_hub 2 deletes the part of an interrupted process, so the part file is kept here; the
transfer itself, with its retries and ranges, is huggingface_hub's.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx2
from huggingface_hub import constants
from huggingface_hub.file_download import http_get
from huggingface_hub.utils.tqdm import tqdm as hub_tqdm

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.files import write_text
from reprise.hub.place import explain_os, part_file, part_name, room_for
from reprise.hub.verified import CHUNK, git_blob_id, hash_file

__all__ = ["Remote", "download"]

Progress = Callable[[int], None]
# Seconds before a broken transfer resumes after huggingface_hub stopped its own retries (after 5
# seconds; at once after a reset): a restarting switch must not end a download of 600 GB.
PAUSES = (2, 5, 10, 20, 30)
_log = logging.getLogger("huggingface_hub.reprise")
# A broken connection loses the piece that was not complete; the library's own are 10 MiB.
constants.DOWNLOAD_CHUNK_SIZE = 1 << 20
_PAGE = (b"<!doctype html", b"<html")


@dataclass(frozen=True, slots=True)
class Remote:
    """A file on a server: its size in bytes, and its SHA-256 or its git blob id (SHA-1).

    A hub gives the SHA-256 of large files and the git blob id of small ones.
    """

    url: str
    where: str
    size: int | None
    sha256: str | None
    git_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class _Hashed:
    """A file that hashes what is written; http_get may start it again from 0."""

    def __init__(self, file: IO[bytes], remote: Remote, progress: Progress | None) -> None:
        self._file = file
        self._remote = remote
        self._progress = progress
        self._digest = self._fresh()
        self._from_start = False

    def _fresh(self) -> Any:
        if self._remote.sha256 is None and self._remote.git_id is not None:
            digest = hashlib.sha1(usedforsecurity=False)
            digest.update(f"blob {self._remote.size}\0".encode())
            return digest
        return hashlib.sha256()

    def resume(self) -> int:
        """Hash the part of an earlier run; the number of its bytes (0 if it is too long)."""
        self._from_start = False
        self._digest = self._fresh()
        self._file.seek(0, 2)
        if self._remote.size is None or self._file.tell() > self._remote.size:
            self._file.truncate(0)
        self._file.seek(0)
        while piece := self._file.read(CHUNK):
            self._took(piece)
        return self._file.tell()

    def _took(self, piece: bytes) -> None:
        self._digest.update(piece)
        if self._progress is not None:
            self._progress(len(piece))

    def write(self, piece: bytes) -> int:
        """Append a piece; a page in HTML instead of the file's beginning is refused."""
        if self._from_start or not self.tell():
            self._refuse_page(piece)
        if self._from_start:
            self.empty()
        self._took(piece)
        return self._file.write(piece)

    def _refuse_page(self, piece: bytes) -> None:
        """A proxy or a login page answers with status 200, for any file."""
        is_page = piece[:200].lstrip().lower().startswith(_PAGE)
        if is_page and not self._remote.where.endswith((".html", ".htm")):
            raise CannotTell("hub-download.page", self._remote.where)

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, place: int) -> int:
        return self._file.seek(place)

    def truncate(self) -> int:
        """Called when the server sends the file from its start: the part stays until it does."""
        self._from_start = True
        return 0

    def empty(self) -> None:
        """Forget all bytes."""
        if self._progress is not None:
            self._progress(-self._file.seek(0, 2))
        self._file.seek(0)
        self._file.truncate(0)
        self._digest = self._fresh()
        self._from_start = False

    def settle(self) -> int:
        """The place to continue from: the end, also after a start over that sent nothing."""
        self._from_start = False
        return self._file.seek(0, 2)

    def hexdigest(self) -> str:
        return str(self._digest.hexdigest())


def download(remote: Remote, target: Path, progress: Progress | None = None) -> None:
    """Download `remote` to `target`; the old file stays unless all bytes are right.

    An interrupted download leaves `.NAME.part` next to the target, with `.NAME.part.of` that says
    of which file, and resumes from it. If the bytes are wrong after a resume, the download starts
    over once. A run that waited for another one takes the file that it finished.
    `progress` gets the bytes of each piece (negative when the server requires a restart).
    Raises OperatorError for wrong bytes or no room, and what the transfer raises.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part_file(target, keep=True, waiting=lambda: _count(progress, 0)) as file:
            if _is_there(remote, target):
                part_name(target).unlink(missing_ok=True)
                raise _Finished
            _keep_own(remote, target, file)
            hashed = _Hashed(file, remote, progress)
            done = hashed.resume()
            room_for(target.parent, (remote.size or 0) - done)
            _patiently(remote, hashed, progress)
            if done and not _is_right(remote, hashed.hexdigest()):
                _log.warning("%s: wrong bytes after a resume; starting over", remote.where)
                hashed.empty()
                _patiently(remote, hashed, progress)
            file.flush()
            _compare(remote, hashed.hexdigest(), file)
    except _Finished:
        pass
    except OSError as error:
        if error.errno is None:  # the transfer's own: no error of the file system
            raise
        raise explain_os(error, target, remote.size) from None
    _origin(target).unlink(missing_ok=True)


class _Finished(Exception):
    """Another run has finished the file."""


def _is_there(remote: Remote, target: Path) -> bool:
    """Has the target the server's bytes? Only a file of the right size is read."""
    if not target.is_file() or target.stat().st_size != remote.size:
        return False
    if remote.sha256 is not None:
        return hash_file(target) == remote.sha256
    return remote.git_id is not None and git_blob_id(target) == remote.git_id


def _origin(target: Path) -> Path:
    return target.with_name(f".{target.name}.part.of")


def _keep_own(remote: Remote, target: Path, file: IO[bytes]) -> None:
    """Empty a part of another file, revision or program; note of which file the new one is."""
    identity = f"{remote.sha256 or remote.git_id or remote.url} {remote.size}\n"
    origin = _origin(target)
    try:
        known = origin.read_text(encoding="utf-8")
    except (OSError, ValueError):
        known = ""
    if known != identity:
        file.seek(0)
        file.truncate(0)
        write_text(origin, identity)


def _count(progress: Progress | None, size: int) -> None:
    if progress is not None:
        progress(size)


def _patiently(remote: Remote, hashed: _Hashed, progress: Progress | None) -> None:
    """The transfer, resumed as long as bytes arrive between two failures."""
    pauses = iter(PAUSES)
    while True:
        done = hashed.tell()
        try:
            return _transfer(remote, hashed)
        except httpx2.TransportError as error:
            if hashed.tell() > done:
                pauses = iter(PAUSES)
            pause = next(pauses, None)
            if pause is None:
                raise
            _log.warning("%s: %s; retry in %s seconds", remote.where, error, pause)
        for _ in range(pause):
            time.sleep(1)
            _count(progress, 0)  # notices an interrupt


def _transfer(remote: Remote, hashed: _Hashed) -> None:
    try:
        http_get(
            remote.url,
            hashed,  # type: ignore[arg-type]
            resume_size=hashed.settle(),
            headers=dict(remote.headers),
            expected_size=remote.size,
            tqdm_class=_Silent,
        )
    except OSError as error:
        if error.errno is None and not isinstance(error, httpx2.HTTPError):
            hashed.empty()  # a complete answer of another length is not this file
        raise


class _Silent(hub_tqdm):
    """Shows no bar: the bytes are counted where they are written."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **(options | {"disable": True}))  # type: ignore[no-untyped-call]


def _is_right(remote: Remote, found: str) -> bool:
    wanted = remote.sha256 or remote.git_id
    return wanted is None or found == wanted


def _compare(remote: Remote, found: str, file: IO[bytes]) -> None:
    if _is_right(remote, found):
        return
    wanted = remote.sha256 or remote.git_id
    size = file.tell()
    file.truncate(0)  # useless to the next run
    kind = "sha256" if remote.sha256 else "git blob id"
    raise OperatorError(
        "data-hash.wrong-bytes", remote.where, kind=kind, wanted=wanted, found=found, size=size
    )
