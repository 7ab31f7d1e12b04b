"""Install a file under its final name: hard link, reflink or copy, checked, by one rename."""

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
from reprise.core.files import nearest_existing, open_locked
from reprise.hub.verified import CHUNK, hash_file

__all__ = ["Mismatch", "explain_os", "part_file", "part_name", "place", "room_for"]

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
    """Install `source` as `target` when its SHA-256 is the locked one (None: any); return how.

    With `may_link` a hard link is tried first (for an immutable file of a cache); else the blocks
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
        raise Mismatch("data-hash.wrong-source", str(source), wanted=wanted, found=found, size=size)


def _link(source: Path, target: Path) -> None:
    """A hard link that replaces `target`; renaming a link onto its own file leaves both names."""
    name = target.with_name(f".{target.name}.{os.getpid()}.link")
    name.unlink(missing_ok=True)
    os.link(source, name)
    name.replace(target)
    name.unlink(missing_ok=True)


def part_name(target: Path) -> Path:
    """The name of the part file of `target`."""
    return target.with_name(f".{target.name}.part")


@contextlib.contextmanager
def part_file(
    target: Path, keep: bool = False, waiting: Callable[[], None] = lambda: None
) -> Iterator[IO[bytes]]:
    """A locked part file next to `target` that takes its name when the block ends well.

    Its name is always the same: the next run uses (`keep`) or overwrites what a killed run left,
    and the lock makes simultaneous runs take turns; while this one waits, `waiting` is called
    repeatedly. Raises OSError as the file system does.
    """
    name = part_name(target)
    # Another run may have finished while this one waited.
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
    there = nearest_existing(folder)
    free = shutil.disk_usage(there).free
    if free < size:
        raise _no_space(folder, size, free)


def _no_space(folder: Path, size: int | None, free: int) -> OperatorError:
    if size:
        return OperatorError("data-space.full", str(folder), needed=size, free=free)
    return OperatorError("data-space.full-unknown-size", str(folder), free=free)


def _size(source: Path) -> int | None:
    return source.stat().st_size if source.exists() else None


def explain_os(error: OSError, target: Path, size: int | None) -> OperatorError:
    """The finding for an error of the file system at `target` of `size` bytes."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _no_space(target.parent, size, shutil.disk_usage(target.parent).free)
    return OperatorError(
        "data-place.cannot-write", str(error.filename or target), reason=error.strerror or error
    )
