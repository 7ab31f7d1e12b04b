"""The pip that this machine has."""

from __future__ import annotations

import shutil
import subprocess
import sys

from reprise.core.errors import CannotTell

__all__ = ["find_pip"]


def find_pip() -> list[str]:
    """The command line of a pip: this interpreter's, that of the one it was made from, or PATH's.

    Raises CannotTell when there is none.
    """
    base = getattr(sys, "_base_executable", sys.executable)
    for candidate in dict.fromkeys([sys.executable, base, shutil.which("python3") or ""]):
        if not candidate:
            continue
        probe = [candidate, "-m", "pip", "--version"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return [candidate, "-m", "pip", "--disable-pip-version-check"]
    raise CannotTell("pip", "pip", "no Python here has it", "python3 -m ensurepip")
