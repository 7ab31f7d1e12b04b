"""Files that are written whole or not at all, their digests, and locks that can be waited for."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import orjson

__all__ = [
    "dump_json",
    "hold_lock",
    "nearest_existing",
    "open_locked",
    "sha256_file",
    "sha256_text",
    "try_lock",
    "write_text",
    "writing",
]

# Seconds between two attempts at a lock that another process holds.
_LOOK = 0.1
# What storage without locks answers: Lustre mounted without `flock` (ENOSYS), NFS without a lock
# daemon (ENOLCK), other network file systems (EOPNOTSUPP).
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}


@contextlib.contextmanager
def writing(path: Path, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """Yield a binary file that takes the name `path` only when the block ends without an error.

    The temporary file is in the same folder, is flushed to the disk before the rename and is
    removed when the block fails, so that no reader ever sees half a file.
    Raises OSError from the file system (no space, read-only, missing folder).
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.chmod(mode)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; file systems that cannot sync a folder are left as they are."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Write `text` as UTF-8 under `path`, whole or not at all."""
    with writing(path, mode) as file:
        file.write(text.encode())


def dump_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys and a final newline; NaN becomes null."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    with writing(path) as file:
        file.write(orjson.dumps(value, option=options))


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, as 64 lower-case hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_text(text: str) -> str:
    """The SHA-256 of a text's UTF-8 bytes, as 64 lower-case hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def nearest_existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def hold_lock(handle: int, waiting: Callable[[], None]) -> bool:
    """Take the lock of an open file; it is released with the file's last handle.

    While another process has it, `waiting` is called ten times a second, and ends the wait by what
    it raises: a thread that the system had put to sleep until then would hear of no interrupt.
    False where the storage has no locks: then nothing keeps two commands apart.
    """
    while True:
        held = try_lock(handle)
        if held is not False:
            return held is True
        waiting()
        time.sleep(_LOOK)


def try_lock(handle: int, shared: bool = False) -> bool | None:
    """Take the lock of an open file: False when another has it, None when the storage has no locks.

    A `shared` lock only keeps others from taking it alone. Raises OSError for anything else.
    """
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


def open_locked(path: Path, waiting: Callable[[], None]) -> IO[bytes]:
    """Open `path` to read and append, and hold its lock; `waiting` as for `hold_lock`.

    The previous holder may have renamed or removed the file: then the file that has the name now is
    locked. Raises OSError from the file system.
    """
    while True:
        file = path.open("a+b")
        try:
            hold_lock(file.fileno(), waiting)
            if path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                return file
        except BaseException:
            file.close()
            raise
        file.close()
