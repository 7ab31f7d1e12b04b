"""A small project around the real scripts/venv.sh, with wheels of its own instead of an index."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"

# A build backend without dependencies, so that the project itself can be installed offline.
BACKEND = """
import zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "mini-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("mini.py", "")
        meta = "Metadata-Version: 2.1\\nName: mini\\nVersion: 1\\n"
        wheel.writestr("mini-1.dist-info/METADATA", meta)
        wheel.writestr("mini-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr("mini-1.dist-info/RECORD", "")
    return name
build_wheel = build_editable
"""


def write_wheel(folder: Path, name: str, version: str) -> str:
    """Write a wheel with one module that knows its version; return its requirement line."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in files.items())
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inner, text in files.items():
            wheel.writestr(inner, text)
        wheel.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{name}=={version} \\\n    --hash=sha256:{digest}\n"


def _digest(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@dataclass(frozen=True)
class Mini:
    """The project's folder and its wheels."""

    root: Path
    wheels: Path

    def lock(self, *lines: str, kind: str = "operator") -> None:
        (self.root / "requirements" / f"{kind}.txt").write_text("".join(lines))

    def environment(self, extra: Mapping[str, str] = {}, path: str = "") -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
        return clean | {
            "PATH": f"{path}:/usr/bin:/bin" if path else "/usr/bin:/bin",
            "REPRISE_WHEELS": str(self.wheels),
            "PIP_CONFIG_FILE": os.devnull,
            **extra,
        }

    def command(self, kind: str = "operator") -> list[str]:
        return ["sh", "scripts/venv.sh", kind, "--python", PYTHON]

    def setup(
        self, kind: str = "operator", extra: Mapping[str, str] = {}, path: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(kind),
            cwd=self.root,
            env=self.environment(extra, path),
            capture_output=True,
            text=True,
            check=False,
        )

    def version(self, module: str, venv: str = ".venv") -> str | None:
        """The version that the environment imports, None when it is not there."""
        code = f"import {module}; print({module}.VERSION)"
        done = subprocess.run(
            [self.root / venv / "bin" / "python", "-c", code],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else None


def make_mini(root: Path) -> Mini:
    """Lay the project; its lock names alpha 1.0."""
    for folder in ("scripts", "requirements", "wheels"):
        (root / folder).mkdir(parents=True)
    for script in ("venv.sh", "venv_prune.py", "pip_settings.py"):
        shutil.copy(ROOT / "scripts" / script, root / "scripts" / script)
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "mini"\nversion = "1"\n'
    )
    (root / "backend.py").write_text(BACKEND)
    mini = Mini(root, root / "wheels")
    mini.lock(write_wheel(mini.wheels, "alpha", "1.0"))
    return mini
