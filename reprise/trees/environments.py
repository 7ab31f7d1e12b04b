"""Create a Python environment of the lock with the project's own script."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from reprise.core.children import run_in_session
from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file
from reprise.lock.model import Environment
from reprise.lock.requirements import pins_sha256, read_pins

__all__ = ["place_environment", "rollout_options"]


def place_environment(
    root: Path, name: str, environment: Environment, wheels: Path | None = None
) -> None:
    """Create or repair the environment `name` below `root`; returns at once when nothing changed.

    Its requirements file must be the locked one. `wheels` is a folder to take every wheel from
    instead of an index. The script's output goes to standard error. Raises OperatorError.
    """
    _same(root, name, environment)
    command = ["sh", str(root / "scripts" / "venv.sh"), name]
    if environment.trim is not None:
        command = [str(root / "scripts" / "gpu" / "env.py"), *rollout_options(environment)]
    variables = dict(os.environ)
    if wheels is not None:
        variables["REPRISE_WHEELS"] = str(wheels)
    sys.stderr.flush()
    # Its output is progress; standard output belongs to the report.
    done = run_in_session(command, cwd=root, env=variables, stdout=sys.stderr)
    if done.returncode != 0:
        script = " ".join(command[-2:])
        where = f"environment.{name}"
        raise OperatorError("environment.script", where, script=script, code=done.returncode)


def rollout_options(environment: Environment) -> list[str]:
    """The words that scripts/gpu/env.py needs for this environment; none for vLLM's."""
    rollout = environment.folder.partition(".venv-gpu-")[2]
    return ["--rollout", rollout] if rollout else []


def _same(root: Path, name: str, environment: Environment) -> None:
    path = root / environment.requirements
    where = f"environment.{name}"
    if environment.pins_sha256 is None:
        raise OperatorError("lock-pinned.no-digest", where, name=name)
    found = pins_sha256(read_pins(path))
    if found != environment.pins_sha256:
        raise OperatorError(
            "lock-environment.pins",
            where,
            file=path,
            found=found,
            expected=environment.pins_sha256,
            name=name,
        )
    for file, expected in environment.extra.items():
        if (found := sha256_file(root / file)) != expected:
            raise OperatorError(
                "lock-environment.sha256",
                where,
                file=file,
                found=found,
                expected=expected,
                name=name,
            )
