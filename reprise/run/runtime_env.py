"""The Ray runtime environment of a job: the project's, the recipe's and the run's, merged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from reprise.errors import OperatorError

__all__ = ["merge_runtime_env"]


def merge_runtime_env(
    root: Path, files: tuple[Path, ...], variables: Mapping[str, str]
) -> dict[str, Any]:
    """What is given to Ray: `root` as the working directory, excludes and env_vars of all `files`.

    A later file, and then `variables`, wins over an earlier one; a file that is not there is
    left out. Raises OperatorError for a file that is not a YAML mapping.
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
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        fix = "correct that line: a YAML mapping with excludes and env_vars"
        raise OperatorError("runtime-env", where, f"is not YAML: {error}", fix) from None
    if not isinstance(value, dict):
        fix = "write a mapping with the keys excludes and env_vars"
        raise OperatorError("runtime-env", str(path), "expected a mapping", fix)
    return value
