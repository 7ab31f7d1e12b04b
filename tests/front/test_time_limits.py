"""A test that hangs is told: it fails alone, or, where nothing wakes it, ends the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

HANGS = """
import os, threading

def test_that_waits_for_ever():
    threading.Event().wait()

def test_after_it():
    pass

def test_that_no_signal_wakes():
    reader, writer = os.pipe()
    file = os.fdopen(reader, "rb")
    threading.Thread(target=file.read, daemon=True).start()
    threading.Event().wait(0.5)  # it reads, and holds the file's lock
    file.close()

def test_that_is_not_reached():
    pass
"""


def test_a_hang_is_told_and_ends(tmp_path: Path) -> None:
    file = tmp_path / "test_hangs.py"
    file.write_text(HANGS)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-vv"]
    command += ["-p", "no:cacheprovider", "-o", "timeout=2", "-o", "faulthandler_timeout=8"]
    done = subprocess.run(
        [*command, str(file)], capture_output=True, text=True, check=False, timeout=300
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "test_that_waits_for_ever FAILED" in said
    assert "test_after_it PASSED" in said
    assert "in test_that_no_signal_wakes" in done.stderr
    assert "not_reached" not in said
