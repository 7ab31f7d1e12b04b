"""Locations: the project's root and the folders below it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from reprise.core.errors import OperatorError

__all__ = ["Project", "find_project"]


@dataclass(frozen=True, slots=True)
class Project:
    """The folders of one checkout."""

    root: Path

    @property
    def lock(self) -> Path:
        """versions.lock, which marks the root."""
        return self.root / "versions.lock"

    @property
    def recipes(self) -> Path:
        """One folder per model."""
        return self.root / "recipes"

    @property
    def runs(self) -> Path:
        """Run folders: RUNS_DIR (storage that the cluster shares), else runs/."""
        return Path(os.environ.get("RUNS_DIR") or self.root / "runs").absolute()

    @property
    def cache(self) -> Path:
        """Files that can be rebuilt: the tiny model, the toy data."""
        return self.root / ".cache"

    @property
    def rehearsal_python(self) -> Path:
        """The interpreter that has torch, vLLM and verl."""
        return self.root / ".venv-rehearsal" / "bin" / "python"


def find_project() -> Project:
    """The checkout around the working directory, else the one that contains this package.

    Raises OperatorError when neither has a versions.lock.
    """
    here = Path.cwd()
    package = Path(__file__).resolve().parents[2]
    for folder in (here, *here.parents, package):
        if (folder / "versions.lock").is_file() and (folder / "recipes").is_dir():
            return Project(folder)
    raise OperatorError("project.outside", str(here))
