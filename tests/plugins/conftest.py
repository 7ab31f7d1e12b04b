"""The plug-ins for two kinds of test: imported here (no torch), installed for the rehearsal."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PLUGINS = REPOSITORY / "plugins"
PROBES = Path(__file__).parent / "probes"
PYTHON = Path(
    os.environ.get("REPRISE_REHEARSAL_PYTHON", REPOSITORY / ".venv-rehearsal" / "bin" / "python")
)

sys.path.insert(0, str(PLUGINS / "src"))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plug-ins of this checkout installed, entry points and all."""
    work = tmp_path_factory.mktemp("plugins")
    shutil.copytree(
        PLUGINS,
        work / "source",
        ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"),
    )
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--target", str(work / "site"), str(work / "source")]
    subprocess.run(command, check=True)
    return work / "site"


@pytest.fixture(scope="session")
def rehearse(installed: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the rehearsal's Python with arguments; keywords are environment variables."""

    def run(
        *arguments: object, tree: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("VERL_", "REPRISE_", "VLLM_", "RAY_"))
        }
        path = [str(folder) for folder in (installed, tree) if folder]
        kept |= {"PYTHONPATH": os.pathsep.join(path), **environment}
        return subprocess.run(
            [str(PYTHON), *(str(argument) for argument in arguments)],
            check=False,
            capture_output=True,
            text=True,
            env=kept,
            timeout=600,
        )

    return run


@pytest.fixture(scope="session")
def tiny(
    rehearse: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The folder that probes/make_model.py writes."""
    folder = tmp_path_factory.mktemp("tiny")
    made = rehearse(PROBES / "make_model.py", folder)
    assert made.returncode == 0, made.stderr
    return folder


def result(process: subprocess.CompletedProcess[str]) -> dict:
    """The JSON object that a probe printed after RESULT."""
    lines = [line for line in process.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, process.stdout + process.stderr
    return json.loads(lines[-1].removeprefix("RESULT "))
