"""A test that hangs is told: it fails alone, or, where nothing wakes it, ends the run."""

from __future__ import annotations

import re
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


def hanging(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    file = folder / "test_hangs.py"
    file.write_text(HANGS)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-vv", *words]
    command += ["-p", "no:cacheprovider", "-o", "timeout=2", "-o", "faulthandler_timeout=8"]
    return subprocess.run(
        [*command, str(file)], capture_output=True, text=True, check=False, timeout=300
    )


def test_a_hang_is_told_and_ends(tmp_path: Path) -> None:
    done = hanging(tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "test_that_waits_for_ever FAILED" in said
    assert "test_after_it PASSED" in said
    assert "in test_that_no_signal_wakes" in done.stderr
    assert "not_reached" not in said


def test_side_by_side_a_hang_ends_its_worker_alone(tmp_path: Path) -> None:
    done = hanging(tmp_path, "-n", "1")
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert re.search(r"FAILED .*test_that_waits_for_ever", said)
    assert "in test_that_no_signal_wakes" in done.stderr
    assert re.search(r"worker 'gw0' crashed while running .*test_that_no_signal_wakes", said)
    assert re.search(r"PASSED .*test_that_is_not_reached", said)
    assert re.search(r"2 failed, 2 passed in ", said)
