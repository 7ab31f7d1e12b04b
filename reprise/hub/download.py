"""One file over HTTP into its place: taken up where it stopped, hashed while it streams.

huggingface_hub 2 drops what an interrupted process has downloaded, so that the part file is kept
here; the transfer itself, with its retries and ranges, is huggingface_hub's.
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
from huggingface_hub.file_download import http_get
from huggingface_hub.utils.tqdm import tqdm as hub_tqdm

from reprise.core.errors import OperatorError
from reprise.hub.place import explain_os, part_file, room_for
from reprise.hub.verified import CHUNK

__all__ = ["Remote", "download"]

Progress = Callable[[int], None]
# Seconds before a broken transfer is taken up again, once huggingface_hub gave up (after 5 seconds;
# at once where the connection was reset): a switch that starts again does not end 600 GB.
PAUSES = (2, 5, 10, 20, 30)
_log = logging.getLogger("huggingface_hub.reprise")


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

    def _fresh(self) -> Any:
        if self._remote.sha256 is None and self._remote.git_id is not None:
            digest = hashlib.sha1(usedforsecurity=False)
            digest.update(f"blob {self._remote.size}\0".encode())
            return digest
        return hashlib.sha256()

    def resume(self) -> int:
        """Hash what an earlier run has left; the number of its bytes (0 if it is too long)."""
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
        self._took(piece)
        return self._file.write(piece)

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, place: int) -> int:
        return self._file.seek(place)

    def truncate(self) -> int:
        if self._progress is not None:
            self._progress(-self._file.seek(0, 2))
        self._file.seek(0)
        self._digest = self._fresh()
        return self._file.truncate()

    def hexdigest(self) -> str:
        return str(self._digest.hexdigest())


def download(remote: Remote, target: Path, progress: Progress | None = None) -> None:
    """Download `remote` to `target`; the old file stays unless all bytes are right.

    An interrupted download leaves `.NAME.part` beside the target and is taken up from there.
    `progress` gets the bytes of each piece (negative when the server makes us start again).
    Raises OperatorError for wrong bytes or no room, and what the transfer raises.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part_file(target, keep=True, waiting=lambda: _count(progress, 0)) as file:
            hashed = _Hashed(file, remote, progress)
            done = hashed.resume()
            room_for(target.parent, (remote.size or 0) - done)
            _patiently(remote, hashed, progress)
            file.flush()
            _compare(remote, hashed.hexdigest(), file)
    except OSError as error:
        if error.errno is None:  # the transfer's own: no error of the file system
            raise
        raise explain_os(error, target, remote.size) from None


def _count(progress: Progress | None, size: int) -> None:
    if progress is not None:
        progress(size)


def _patiently(remote: Remote, hashed: _Hashed, progress: Progress | None) -> None:
    """The transfer, taken up again as long as bytes come between two of its failures."""
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
            _log.warning("%s: %s; again in %s seconds", remote.where, error, pause)
        for _ in range(pause):
            time.sleep(1)
            _count(progress, 0)  # hears of an interrupt


def _transfer(remote: Remote, hashed: _Hashed) -> None:
    http_get(
        remote.url,
        hashed,  # type: ignore[arg-type]
        resume_size=hashed.tell(),
        headers=dict(remote.headers),
        expected_size=remote.size,
        tqdm_class=_Silent,
    )


class _Silent(hub_tqdm):
    """No bar of its own: the bytes are counted where they are written."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **(options | {"disable": True}))  # type: ignore[no-untyped-call]


def _compare(remote: Remote, found: str, file: IO[bytes]) -> None:
    wanted = remote.sha256 or remote.git_id
    if wanted is None or found == wanted:
        return
    size = file.tell()
    file.truncate(0)  # nothing of it can be of use to the next run
    kind = "sha256" if remote.sha256 else "git blob id"
    raise OperatorError(
        "data-hash.expected-server-sent",
        remote.where,
        kind=kind,
        wanted=wanted,
        found=found,
        size=size,
    )
