"""What env.py and its parts share: the project's root, a problem with its fix, whole files."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Problem(Exception):
    """What is wrong, and what to do about it."""

    def __init__(self, message: str, fix: str, code: int = 2) -> None:
        super().__init__(message)
        self.fix = fix
        self.code = code


def put(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file whole, and only when it changes: a run may be reading it at this moment."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    half = path.with_name(f"{path.name}.half")
    half.write_text(text)
    half.chmod(mode)
    half.replace(path)


def run_in(venv: Path, code: str) -> subprocess.CompletedProcess:
    """Run Python code in the environment."""
    command = [str(venv / "bin" / "python"), "-c", code]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
