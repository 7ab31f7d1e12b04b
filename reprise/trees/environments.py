"""Make a Python environment of the lock by the project's own script."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from reprise.core.children import run_in_session
from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file
from reprise.lock.model import Environment
from reprise.lock.requirements import pins_sha256, read_pins

__all__ = ["place_environment"]


def place_environment(
    root: Path, name: str, environment: Environment, wheels: Path | None = None
) -> None:
    """Make or repair the environment `name` below `root`; returns at once when nothing changed.

    Its requirements file must be the locked one. `wheels` is a folder to take every wheel from
    instead of an index. What the script says goes to standard error. Raises OperatorError.
    """
    _same(root, name, environment)
    command = ["sh", str(root / "scripts" / "venv.sh"), name]
    if environment.trim is not None:
        command = [str(root / "scripts" / "gpu" / "env.py")]
    variables = dict(os.environ)
    if wheels is not None:
        variables["REPRISE_WHEELS"] = str(wheels)
    sys.stderr.flush()
    # Its output is progress; standard output belongs to the report.
    done = run_in_session(command, cwd=root, env=variables, stdout=sys.stderr)
    if done.returncode != 0:
        message = f"{' '.join(command[-2:])} ended with exit code {done.returncode}"
        fix = "do what it said above, then repeat the command: it takes up where it stopped"
        raise OperatorError("environment", f"environment.{name}", message, fix)


def _same(root: Path, name: str, environment: Environment) -> None:
    path = root / environment.requirements
    fix = f"if the change is meant: `reprise lock update environment.{name}`"
    where = f"environment.{name}"
    if environment.pins_sha256 is None:
        raise OperatorError("lock-pinned", where, "has no digest to compare with", fix)
    found = pins_sha256(read_pins(path))
    if found != environment.pins_sha256:
        message = f"{path} pins {found}, the lock says {environment.pins_sha256}"
        raise OperatorError("lock-environment", where, message, fix)
    for file, expected in environment.extra.items():
        if sha256_file(root / file) != expected:
            message = f"{file} is not the file that the lock names"
            raise OperatorError("lock-environment", where, message, fix)
