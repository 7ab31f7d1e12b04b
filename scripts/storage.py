"""How fast one host writes and reads storage, in GB/s (1e9 bytes a second): bounded, tidied up.

Needs no other file and no package. S_READ (lines of `NAME FOLDER`), S_WRITE (the same), S_MIB and
S_SECONDS (limits of one measurement), S_NONCE (part of the file's name). Reads existing files of at
least 64 MiB; what it writes is read back and removed. The page cache is avoided by direct I/O, or
by dropping the file's pages where the storage has no direct I/O.
"""

import contextlib
import mmap
import os
import signal
import sys
import time
from pathlib import Path

BLOCK = 16 << 20
LEAST = 64 << 20
LIMIT, SECONDS = int(os.environ["S_MIB"]) << 20, float(os.environ["S_SECONDS"])
MOST_FILES = 5000
DIRECT = getattr(os, "O_DIRECT", 0)


def opened(path: Path, flags: int) -> tuple:
    """A descriptor, and how the page cache is avoided."""
    if DIRECT:
        with contextlib.suppress(OSError):
            return os.open(path, flags | DIRECT, 0o600), "direct"
    return os.open(path, flags, 0o600), "dropped"


def write(path: Path, buffer: mmap.mmap) -> tuple:
    """Bytes written, seconds until they are on the storage, and how the cache was avoided."""
    done, began = 0, time.monotonic()
    # Not O_EXCL: an open that fails for O_DIRECT may have made the file.
    file, mode = opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        while done < LIMIT and time.monotonic() - began < SECONDS:
            # Other bytes in each block: storage may find equal ones.
            buffer[:8] = os.urandom(8)
            done += os.write(file, buffer)
        os.fsync(file)
    finally:
        os.close(file)
    return done, time.monotonic() - began, mode


def read(paths: list, buffer: mmap.mmap) -> tuple:
    """Bytes read of the files, seconds, and how the cache was avoided."""
    done, seconds, mode = 0, 0.0, ""
    for path in paths:
        file, mode = opened(path, os.O_RDONLY)
        try:
            if mode == "dropped" and hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.monotonic()
            while done < LIMIT and seconds + time.monotonic() - began < SECONDS:
                got = os.readv(file, [buffer])
                done += got
                if got < BLOCK:
                    break
            seconds += time.monotonic() - began
        finally:
            os.close(file)
        if done >= LIMIT or seconds >= SECONDS:
            break
    return done, seconds, mode


def large_files(folder: str) -> list:
    """The large files below a folder, the largest first."""
    found, seen = [], 0
    for root, _, names in os.walk(folder):
        for name in names:
            seen += 1
            path = Path(root, name)
            with contextlib.suppress(OSError):
                size = path.stat().st_size
                if size >= LEAST and os.access(path, os.R_OK):
                    found.append((size, path))
        if seen > MOST_FILES:
            break
    return [path for _, path in sorted(found, reverse=True)]


def show(kind: str, name: str, done: int, seconds: float, mode: str) -> None:
    """Print a figure, or that too little was measured for one."""
    if done < LEAST or seconds <= 0:
        print(f"? {kind}.{name} only {done >> 20} MiB in {seconds:.1f} s")
    else:
        print(f"= {kind} {name} {done / seconds / 1e9:.4f} {done >> 20} {mode}")


def measure_write(name: str, folder: str, buffer: mmap.mmap) -> None:
    """Write a file, read it back, remove it."""
    usage = os.statvfs(folder)
    if usage.f_bavail * usage.f_frsize < 4 * LIMIT:
        print(f"? write.{name} less than {4 * LIMIT >> 20} MiB are free")
        return
    path = Path(folder, f".reprise-{os.environ['S_NONCE']}-{os.uname().nodename}")
    try:
        show("write", name, *write(path, buffer))
        show("read", name, *read([path], buffer))
    finally:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def measure_read(name: str, folder: str, buffer: mmap.mmap) -> None:
    """Read files that are there."""
    paths = large_files(folder)
    if paths:
        show("read", name, *read(paths, buffer))
    elif os.access(folder, os.R_OK | os.X_OK):
        print(f"? read.{name} no file of 64 MiB or more")
    else:
        print(f"? read.{name} the folder is missing or cannot be read")


def main() -> None:
    """Measure one folder after the other; a fault of one is its own."""
    # The time limit of the caller ends this by a signal: the file is removed all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    buffer = mmap.mmap(-1, BLOCK)
    buffer[:] = os.urandom(BLOCK)
    for variable, kind, measure in (
        ("S_WRITE", "write", measure_write),
        ("S_READ", "read", measure_read),
    ):
        for line in os.environ[variable].splitlines():
            name, _, folder = line.partition(" ")
            try:
                measure(name, folder, buffer)
            except OSError as error:
                print(f"? {kind}.{name} {error.strerror or error}")
            sys.stdout.flush()


main()
