"""Read a Ray runtime environment file as strictly as Ray does not: nothing in it is passed over."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from reprise.core.errors import OperatorError
from reprise.core.nearby import did_you_mean, nearest_words

__all__ = ["OWN_FIELDS", "RAY_FIELDS", "read_job_env"]

OWN_FIELDS = ("working_dir", "excludes", "env_vars")
"""What this project submits of its own runtime_env.yaml files."""

RAY_FIELDS = (
    *OWN_FIELDS,
    *("conda", "config", "container", "image_uri", "java_jars", "pip", "py_executable"),
    *("py_modules", "uv", "worker_process_setup_hook", "_nsight", "_rocprof_sys"),
)
"""What Ray 2.60 takes from an operator (`ray.runtime_env.RuntimeEnv.known_fields`); of any other
key it only logs a warning, where the job runs."""


def read_job_env(path: Path, fields: Collection[str] = OWN_FIELDS) -> dict[str, Any]:
    """The file's content: a mapping with keys of `fields`, `env_vars` a mapping, `excludes` a list.

    Raises FileNotFoundError, and OperatorError (rule "runtime-env", with the line where there is
    one) for a file that is not so.
    """
    fix = f"correct it; the file holds {', '.join(fields)}"
    try:
        value: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or "is not YAML"
        raise OperatorError("runtime-env", where, str(problem), fix) from None
    if value is None:
        return {}
    faults = _faults(value, fields)
    if faults:
        raise OperatorError("runtime-env", str(path), "; ".join(faults), fix)
    return {**value}


def _faults(value: object, fields: Collection[str]) -> list[str]:
    if not isinstance(value, dict):
        return [f"expected keys and values, found a {type(value).__name__}"]
    faults = []
    for key in value:
        if key not in fields:
            hint = did_you_mean(nearest_words(str(key), fields, 1))
            faults.append(f"unknown key {key!r}{hint}")
    if not isinstance(value.get("excludes") or [], list):
        faults.append("excludes must be a list")
    if not isinstance(value.get("env_vars") or {}, dict):
        faults.append("env_vars must be a mapping")
    return faults
