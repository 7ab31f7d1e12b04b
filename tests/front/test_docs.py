"""Documents that must agree with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


def test_the_command_reference_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/cli_reference.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schemas_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/json_schemas.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_exist(path: Path) -> None:
    targets = set(
        re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    )
    named = set(
        re.findall(r"(?:`|^\s*)make ([a-z][a-z0-9-]*)", path.read_text(encoding="utf-8"), re.M)
    )
    assert named <= targets


def test_both_languages_give_the_same_commands() -> None:
    def commands(name: str) -> list[str]:
        blocks = re.findall(r"```sh\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.S)
        return [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]

    assert commands("README.md") == commands("README.zh.md") != []
