"""The package of a rehearsal's job: the project and the locked commits, nothing else to import."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.lock.read import read_lock
from reprise.runs.ray.importable import (
    check_shadowed,
    ignored_in_trees,
    known_modules,
    packages_of,
    pattern_of,
)
from reprise.runs.ray.runtime_env import merge_runtime_env
from reprise.runs.ray.working_dir import walk

__all__ = ["package_env", "refuse_shadowed"]


def package_env(
    project: Project, files: tuple[Path, ...], variables: Mapping[str, str]
) -> dict[str, Any]:
    """What Ray is given, of the runtime environments `files`.

    Importable files of checkouts that git ignores are left out of the package. Raises
    OperatorError for a file that cannot be used.
    """
    made = merge_runtime_env(project.root, files, variables)
    left_out = ignored_in_trees(project.root, read_lock(project.lock))
    made["excludes"] += [pattern_of(path) for path in left_out]
    return made


def refuse_shadowed(project: Project, made: Mapping[str, Any]) -> None:
    """Raise OperatorError for a packed file that the job would import in place of a library."""
    lock = read_lock(project.lock)
    package = walk(project.root, made["excludes"], respect_gitignore=False)
    entries = str(made["env_vars"].get("PYTHONPATH", "")).split(":")
    report = Report("reproduce")
    known = known_modules(project.root, lock)
    check_shadowed(report, package, known, entries, packages_of(lock))
    for found in report.errors():
        raise OperatorError(found.rule, found.where, found.message, found.fix)
