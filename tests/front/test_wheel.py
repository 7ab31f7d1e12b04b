"""What an installation carries: the wheel is built from a copy of the sources and looked into."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs."""
    base = tmp_path_factory.mktemp("wheel")
    source = base / "source"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "reprise", source / "reprise", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(base)],
        cwd=source, check=True, capture_output=True, text=True,
    )  # fmt: skip
    with zipfile.ZipFile(base / done.stdout.split()[-1]) as wheel:
        wheel.extractall(base / "site")
    return base / "site"


def test_every_file_of_the_package_is_in_the_wheel(installed: Path) -> None:
    def files(root: Path) -> set[str]:
        found = (path.relative_to(root) for path in (root / "reprise").rglob("*"))
        return {str(path) for path in found if path.suffix and "__pycache__" not in path.parts}

    assert files(ROOT) == files(installed)
    assert "reprise/machines/profiles/h20.toml" in files(installed)


def test_machine_profiles_are_read_from_an_installation(installed: Path, tmp_path: Path) -> None:
    code = (
        "from reprise.machines import registry; print(registry.__file__);"
        "print(*(machine.lock for machine in registry.machines() if machine.trains))"
    )
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(installed)!r});"]
    command[-1] += code
    said = subprocess.check_output(command, cwd=tmp_path, text=True).split()
    assert said[0].startswith(str(installed))
    assert said[1:4] == ["h20", "musa", "rehearsal"]
