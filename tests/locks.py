"""Storage without locks, as Lustre mounted without `flock` answers: a library before libc."""

import subprocess
from pathlib import Path

_SOURCE = """
#include <errno.h>
int flock(int descriptor, int operation) { errno = ENOSYS; return -1; }
"""


def without_locks(folder: Path) -> dict[str, str]:
    """The variable of processes whose every `flock` is refused; `folder` takes the library."""
    source, library = folder / "flock.c", folder / "libflock.so"
    source.write_text(_SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_PRELOAD": str(library)}
