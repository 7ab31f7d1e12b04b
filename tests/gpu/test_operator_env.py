"""`make` in a project that a bundle for a bare machine brought: no index, no pip."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ".".join(map(str, sys.version_info[:2]))
# What only tests and lint import, and what is large.
NOT_NEEDED = ("scipy", "vl_convert", "mypy", "hypothesis", "_pytest", "virtualenv", "pip")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project as unpart.py lays it down, beside the packages of this environment."""
    root, site = tmp_path / "project", tmp_path / "operator"
    for folder in ("reprise", "scripts", "requirements", "plugins", "recipes/rehearsal"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
    for name in ("Makefile", "pyproject.toml", "versions.lock"):
        shutil.copy(ROOT / name, root)
    site.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(NOT_NEEDED) and "reprise" not in path.name:
            (site / path.name).symlink_to(path)
    digest = hashlib.sha256((root / "requirements/operator.txt").read_bytes()).hexdigest()
    record = {"python": PYTHON, "requirements_sha256": digest}
    (site / "reprise-site.json").write_text(json.dumps(record))
    return root


def make(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"GPU_PYTHON": sys.executable, "PIP_NO_INDEX": "1"}
    command = ["make", "-C", str(project), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_make_finds_what_the_bundle_put_beside_the_project(project: Path) -> None:
    done = make(project, "lock-check")
    assert done.returncode == 0, done.stderr
    assert ".venv: made from" in done.stderr and "lock check: " in done.stdout
    code = "import reprise, typer; print(reprise.__file__, typer.__file__)"
    python = project / ".venv/bin/python"
    # Elsewhere: the working directory comes first on the import path.
    found = subprocess.run(
        [python, "-c", code], cwd="/", capture_output=True, text=True, check=True
    )
    assert found.stdout.split()[0] == str(project / "reprise/__init__.py")
    assert found.stdout.split()[1] == str(project.parent / "operator/typer/__init__.py")
    command = project / ".venv/bin/reprise"
    before = command.stat().st_mtime_ns
    again = make(project, "lock-check")
    assert again.returncode == 0 and ".venv" not in again.stderr
    assert command.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("what", "message", "fix"),
    [
        ("requirements", "was made from another requirements/operator.txt", "make bundle"),
        ("python", "the packages of the bundle are for 3.99", "GPU_PYTHON="),
        ("venv", "was not made from", "move it away"),
    ],
)
def test_what_does_not_fit_is_refused(project: Path, what: str, message: str, fix: str) -> None:
    if what == "requirements":
        with (project / "requirements/operator.txt").open("a") as file:
            file.write("# another\n")
    elif what == "python":
        file_ = project.parent / "operator/reprise-site.json"
        file_.write_text(
            json.dumps(json.loads(file_.read_text(encoding="utf-8")) | {"python": "3.99"})
        )
    else:
        (project / ".venv").mkdir()
        (project / ".venv/mine").touch()
    done = make(project, "lock-check")
    assert done.returncode == 2
    assert message in done.stderr and fix in done.stderr and "Traceback" not in done.stderr
    assert (project / ".venv/mine").exists() == (what == "venv")
