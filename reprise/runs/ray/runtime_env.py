"""The Ray runtime environment of a job: the project's, the recipe's and the run's, merged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reprise.core.runtime_env import read_job_env

__all__ = ["merge_runtime_env"]


def merge_runtime_env(
    root: Path, files: tuple[Path, ...], variables: Mapping[str, str]
) -> dict[str, Any]:
    """What is given to Ray: `root` as the working directory, excludes and env_vars of all `files`.

    A later file, and then `variables`, wins over an earlier one; a file that is not there is
    left out. Raises OperatorError for a file that is not what `read_job_env` expects.
    """
    excludes: list[str] = []
    merged: dict[str, str] = {}
    for path in files:
        content = _read(path)
        excludes += [str(pattern) for pattern in content.get("excludes") or []]
        merged |= {key: str(value) for key, value in (content.get("env_vars") or {}).items()}
    return {
        "working_dir": str(root),
        "excludes": excludes,
        "env_vars": {**merged, **variables},
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_job_env(path)
    except FileNotFoundError:
        return {}
