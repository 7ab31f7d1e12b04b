"""Put a file under its final name: hard link, reflink or copy, checked, by one rename."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from reprise.core.errors import OperatorError
from reprise.core.files import open_locked
from reprise.hub.verified import CHUNK, hash_file

__all__ = ["Mismatch", "explain_os", "part_file", "place", "room_for"]

# ioctl request of Linux (linux/fs.h) that shares the blocks of another file.
_FICLONE = 0x40049409


class Mismatch(OperatorError):
    """The bytes are not the locked ones."""


def place(
    source: Path,
    target: Path,
    sha256: str | None,
    may_link: bool,
    progress: Callable[[int], None] | None = None,
) -> str:
    """Put `source` under `target` when its SHA-256 is the locked one (None: any); say how.

    With `may_link` a hard link is tried first (for a cache's own, immutable file); else the blocks
    are shared where the file system can, and copied where it cannot, hashed while they are copied.
    Raises Mismatch for other bytes and OperatorError for a full, read-only or missing folder; the
    old file stays in both cases.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if may_link and _same_device(source, target.parent):
            _compare(hash_file(source, progress), sha256, source)
            with contextlib.suppress(OSError):
                _link(source, target)
                return "hard link"
        with part_file(target) as file:
            how = "reflink" if _reflink(source, file) else "copy"
            digest = (
                hash_file(source, progress) if how == "reflink" else _copy(source, file, progress)
            )
            _compare(digest, sha256, source)
        return how
    except OSError as error:
        raise explain_os(error, target, _size(source)) from None


def _same_device(source: Path, folder: Path) -> bool:
    return source.stat().st_dev == folder.stat().st_dev


def _compare(found: str, wanted: str | None, source: Path) -> None:
    if wanted is not None and found != wanted:
        size = source.stat().st_size
        raise Mismatch(
            "data-hash",
            str(source),
            f"expected sha256 {wanted}, found {found} ({size:,} bytes)",
            "fetch it from the hub or a mirror that serves the locked revision",
        )


def _link(source: Path, target: Path) -> None:
    """A hard link that replaces `target`; renaming a link onto its own file leaves both names."""
    name = target.with_name(f".{target.name}.{os.getpid()}.link")
    name.unlink(missing_ok=True)
    os.link(source, name)
    name.replace(target)
    name.unlink(missing_ok=True)


@contextlib.contextmanager
def part_file(
    target: Path, keep: bool = False, waiting: Callable[[], None] = lambda: None
) -> Iterator[IO[bytes]]:
    """A locked part file beside `target` that takes its name when the block ends well.

    Its name is always the same: what a killed run left is used (`keep`) or overwritten by the next
    one, and the lock makes two runs at once take turns; until it is this one's turn `waiting` is
    called again and again. Raises OSError as the file system does.
    """
    name = target.with_name(f".{target.name}.part")
    # Another run may have given its part the final name while it was waited for.
    with open_locked(name, waiting) as file:
        try:
            if not keep:
                file.truncate(0)
            yield file
            file.flush()
            os.fsync(file.fileno())
            name.chmod(0o644)
            name.replace(target)
        except BaseException:
            if not keep:
                name.unlink(missing_ok=True)
            raise


def _reflink(source: Path, target: IO[bytes]) -> bool:
    try:
        with source.open("rb") as file:
            fcntl.ioctl(target.fileno(), _FICLONE, file.fileno())
    except OSError:
        return False
    return True


def _copy(source: Path, target: IO[bytes], progress: Callable[[int], None] | None) -> str:
    digest = hashlib.sha256()
    with source.open("rb", buffering=0) as file:
        while piece := file.read(CHUNK):
            target.write(piece)
            digest.update(piece)
            if progress is not None:
                progress(len(piece))
    return digest.hexdigest()


def room_for(folder: Path, size: int | None) -> None:
    """Raise OperatorError when the file system of `folder` has no room for `size` bytes."""
    if size is None:
        return
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    free = shutil.disk_usage(there).free
    if free < size:
        raise _no_space(folder, size, free)


def _no_space(folder: Path, size: int | None, free: int) -> OperatorError:
    needed = f"{size:,} bytes are needed, " if size else ""
    return OperatorError("data-space.space-left-free", str(folder), needed=needed, free=free)


def _size(source: Path) -> int | None:
    return source.stat().st_size if source.exists() else None


def explain_os(error: OSError, target: Path, size: int | None) -> OperatorError:
    """What an error of the file system means for the operator, for `target` of `size` bytes."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _no_space(target.parent, size, shutil.disk_usage(target.parent).free)
    return OperatorError(
        "data-place.cannot-write", str(error.filename or target), strerror=error.strerror or error
    )
