"""`make test-full`'s command on a small project: it resumes, and writes no table before its end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EMPTY = "# Testing\n\n<!-- test-full: begin -->\nnothing yet\n<!-- test-full: end -->\n\nafter\n"
ONE = """
import os, pytest
from pathlib import Path

def test_counted():
    with Path(os.environ["COUNTED"]).open("a") as file:
        file.write("x")

def test_that_cannot_run_here():
    pytest.skip("needs a machine with wings")
"""
TWO = """
import os, signal, time
from pathlib import Path

def test_fragile():
    mood = Path(os.environ["MOOD"]).read_text(encoding="utf-8")
    journal = Path(".cache/test-full/journal.jsonl")
    while mood == "kill" and "wings" not in journal.read_text(encoding="utf-8"):
        time.sleep(0.05)
    if mood == "kill":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    assert mood == "well"
"""


class Project:
    """A checkout with two rooms of tests; what they depend on lies outside of it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.mood, self.counted = folder / "mood", folder / "counted"
        self.page = self.root / "docs" / "testing.md"
        for name in ("scripts/test_full.py", "tests/conftest.py", "tests/saying.py"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        shutil.copy(ROOT / "pyproject.toml", self.root)
        (self.root / ".gitignore").write_text(".cache/\n__pycache__/\n.pytest_cache/\n")
        for room, text in (("one", ONE), ("two", TWO)):
            (self.root / "tests" / room).mkdir()
            (self.root / "tests" / room / f"test_{room}.py").write_text(text)
        self.page.parent.mkdir()
        self.page.write_text(EMPTY)
        git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "all")):
            subprocess.run([*git, *words], cwd=self.root, check=True)

    def run(self, mood: str, *words: str) -> tuple[int, str]:
        """Exit code and what was said."""
        self.mood.write_text(mood)
        done = subprocess.run(
            [sys.executable, "scripts/test_full.py", "--workers", "1", *words],
            cwd=self.root,
            env={**os.environ, "MOOD": str(self.mood), "COUNTED": str(self.counted)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def times(self) -> int:
        """How often the counted test has run."""
        return len(self.counted.read_text(encoding="utf-8"))


def test_from_a_kill_to_the_table(tmp_path: Path) -> None:
    project = Project(tmp_path)
    code, said = project.run("kill")
    assert code == -signal.SIGKILL, said
    assert project.times() == 1

    code, said = project.run("ill")
    assert code == 1, said
    assert "resumed: on these files 1 tests have passed and 0 failed" in said
    assert "FAILED tests/two/test_two.py::test_fragile" in said
    assert "| `tests/two` | 1 | 0 | 1 | 0 |" in said
    assert "LAST_FAILED=1" in said

    code, said = project.run("well", "--last-failed")
    assert code == 0, said
    assert project.times() == 1
    assert project.page.read_text(encoding="utf-8") == EMPTY

    code, said = project.run("well")
    assert code == 0, said
    assert project.times() == 1
    page = project.page.read_text(encoding="utf-8")
    assert page.startswith("# Testing\n\n<!-- test-full: begin -->\n| room |")
    assert page.endswith("\n<!-- test-full: end -->\n\nafter\n")
    assert "| `tests/one` | 2 | 1 | 0 | 1 |" in page
    assert "| all | 3 | 2 | 0 | 1 |" in page
    assert "interrupted and resumed: 4 sittings" in page
    assert "Failed at first, passed when repeated: `tests/two/test_two.py::test_fragile`" in page
    assert "needs a machine with wings" in page


def test_other_files_are_tested_anew_and_a_part_is_no_whole(tmp_path: Path) -> None:
    project = Project(tmp_path)
    code, said = project.run("well", "--rooms", "one")
    assert code == 0 and "a part of the tests" in said, said
    assert project.page.read_text(encoding="utf-8") == EMPTY
    with (project.root / "tests" / "one" / "test_one.py").open("a") as file:
        file.write("\n# changed\n")
    code, said = project.run("well")
    assert code == 0 and "resumed" not in said, said
    assert project.times() == 2
    page = project.page.read_text(encoding="utf-8")
    assert "with uncommitted changes" in page and "resumed" not in page
    code, said = project.run("well", "--rooms", "three")
    assert code == 2 and "known: files, one, two" in said
