"""Check runtime_env.yaml against the lock: size, dropped code, and where PYTHONPATH leads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.runtime_env import read_job_env
from reprise.lock.model import Lock, Machine
from reprise.runs.ray.working_dir import LIMIT, Package, check_size, walk

__all__ = ["IGNORE_GITIGNORE", "RuntimeEnv", "check_runtime_env", "read_runtime_env"]

IGNORE_GITIGNORE = "RAY_RUNTIME_ENV_IGNORE_GITIGNORE"


@dataclass(frozen=True, slots=True)
class RuntimeEnv:
    """The parts of a runtime_env.yaml that decide what a job finds."""

    path: Path
    working_dir: Path
    excludes: tuple[str, ...]
    env_vars: Mapping[str, str]

    @property
    def python_path(self) -> tuple[str, ...]:
        """PYTHONPATH's entries, in order."""
        return tuple(part for part in self.env_vars.get("PYTHONPATH", "").split(":") if part)


def read_runtime_env(path: Path) -> RuntimeEnv:
    """Read a runtime_env.yaml. Raises OperatorError with the line where it is not one."""
    fix = "correct the line; the file holds working_dir, excludes and env_vars"
    try:
        raw = read_job_env(path)
    except FileNotFoundError:
        raise OperatorError("runtime-env", str(path), "there is no such file", fix) from None
    excludes, env_vars = raw.get("excludes") or [], raw.get("env_vars") or {}
    working_dir = raw.get("working_dir", "./")
    if not isinstance(working_dir, str) or "://" in working_dir:
        message = f"working_dir {working_dir!r} is not a folder of this machine"
        raise OperatorError("runtime-env", path.name, message, fix)
    return RuntimeEnv(
        path,
        (path.parent / working_dir).resolve(),
        tuple(str(item) for item in excludes),
        {str(key): str(value) for key, value in env_vars.items()},
    )


def check_runtime_env(
    env: RuntimeEnv, lock: Lock, machine: Machine, respect_gitignore: bool = False
) -> Report:
    """Check what a job with this runtime environment would find on a node of `machine`.

    Rules: lock-shipped-size (below Ray's limit), lock-shipped-ignored (no ignore file drops code
    that is imported), lock-shipped-pythonpath (each entry holds the package it should, none is
    missing).
    `data["package"]` gives the totals and the largest folders.
    """
    report = Report("lock verify")
    name = env.path.name
    try:
        package = walk(env.working_dir, env.excludes, respect_gitignore)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}"
        report.unknown("lock-shipped-size", name, message, "check the folder's permissions")
        return report
    check_size(report, package, name)
    _ignored(report, env, package)
    _python_path(report, env, lock, machine, package)
    report.data["package"] = {
        "bytes": package.bytes,
        "limit": LIMIT,
        "files": len(package.files),
        "dropped": len(package.dropped),
        "largest": [{"folder": key, "bytes": size} for key, size in package.groups()[:10]],
    }
    return report


def _ignored(report: Report, env: RuntimeEnv, package: Package) -> None:
    rule = "lock-shipped-ignored"
    roots = [PurePosixPath(entry) for entry in env.python_path if not entry.startswith("/")]
    fix = f"submit with {IGNORE_GITIGNORE}=1 (`reprise` does) and leave out by excludes alone"
    lost: list[str] = []
    others = 0
    for item in package.dropped:
        path = PurePosixPath(item.path)
        if path.suffix == ".py" and any(path.is_relative_to(root) for root in roots):
            lost.append(item.path)
            if len(lost) <= 10:
                message = "would not be packed, and lies on PYTHONPATH"
                report.failed(rule, item.because, f"{item.path} {message}", fix)
        else:
            others += 1
            if others <= 10:
                report.note(rule, item.because, f"{item.path} would not be packed")
    if len(lost) > 10:
        message = f"{len(lost) - 10} more Python files would not be packed"
        report.failed(rule, env.path.name, message, fix)
    if others > 10:
        report.note(rule, env.path.name, f"{others - 10} more files would not be packed")
    report.settle(rule)


def _python_path(
    report: Report, env: RuntimeEnv, lock: Lock, machine: Machine, package: Package
) -> None:
    rule = "lock-shipped-pythonpath"
    expected: dict[str, str] = {}
    elsewhere: set[str] = set()
    for tree in lock.tree.values():
        if tree.path and tree.import_package:
            root = str(PurePosixPath(tree.path) / tree.import_root)
            if machine in tree.machines:
                expected[root] = tree.import_package
            else:
                elsewhere.add(root)
    entries = [entry if entry.startswith("/") else str(PurePosixPath(entry))
               for entry in env.python_path]  # fmt: skip
    for entry in entries:
        if entry.startswith("/"):
            message = f"PYTHONPATH entry {entry} is absolute: it must be there on every node"
            report.note(rule, env.path.name, message)
        elif entry in expected:
            _entry(report, env, entry, expected[entry], package)
        elif entry not in elsewhere and not _ships(package, entry):
            message = f"PYTHONPATH entry {entry} holds nothing that is packed"
            report.failed(rule, env.path.name, message, "correct or remove the entry")
    for root, wanted in expected.items():
        if root not in entries:
            message = f"PYTHONPATH lacks {root}, which holds {wanted} for {machine}"
            report.failed(rule, env.path.name, message, f"add {root}")
    report.settle(rule)


def _ships(package: Package, folder: str) -> bool:
    return any(path.startswith(f"{folder}/") for path in package.files)


def _entry(report: Report, env: RuntimeEnv, entry: str, wanted: str, package: Package) -> None:
    """One relative entry of PYTHONPATH: the package it should hold, directly below it, packed."""
    rule = "lock-shipped-pythonpath"
    here = env.working_dir / entry
    place = f"{entry}/{wanted}"
    if _ships(package, place):
        return
    message = f"PYTHONPATH entry {entry} should hold {wanted}, "
    if not here.is_dir():
        found, fix = f"but {here} is not there", "`make setup MACHINE=h20` (or s5000) brings it"
    elif (here / wanted).is_dir():
        found, fix = f"but nothing of {place} is packed", "correct excludes, or the ignore file"
    else:
        found = f"but {place} is not there"
        deeper = sorted(path for path in here.glob(f"*/{wanted}") if path.is_dir())
        if deeper:
            nested = deeper[0].relative_to(env.working_dir)
            found += f"; it lies one level deeper, at {nested}: a clone inside a clone"
        fix = f"move {here} away and repeat `make setup MACHINE=h20` (or s5000)"
    report.failed(rule, env.path.name, message + found, fix)
