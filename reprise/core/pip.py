"""The pip that this machine has."""

from __future__ import annotations

import shutil
import subprocess
import sys

from reprise.core.errors import CannotTell

__all__ = ["find_pip"]


def find_pip() -> list[str]:
    """The command line of pip: of this interpreter, of its base interpreter, or of python3 on PATH.

    Raises CannotTell when none of them has pip.
    """
    base = getattr(sys, "_base_executable", sys.executable)
    for candidate in dict.fromkeys([sys.executable, base, shutil.which("python3") or ""]):
        if not candidate:
            continue
        probe = [candidate, "-m", "pip", "--version"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return [candidate, "-m", "pip", "--disable-pip-version-check"]
    raise CannotTell("pip.missing", "pip")
