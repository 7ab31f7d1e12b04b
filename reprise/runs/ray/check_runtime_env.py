"""Check runtime_env.yaml against the lock: package size, dropped code, PYTHONPATH."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.runtime_env import read_job_env
from reprise.lock.model import Lock, Machine
from reprise.runs.ray.importable import check_shadowed, known_modules, packages_of
from reprise.runs.ray.working_dir import LIMIT, Upload, check_size, walk

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
    """Read a runtime_env.yaml. Raises OperatorError with the line of a fault."""
    try:
        raw = read_job_env(path)
    except FileNotFoundError:
        raise OperatorError("runtime-env.not-found", str(path), path=path) from None
    excludes, env_vars = raw.get("excludes") or [], raw.get("env_vars") or {}
    working_dir = raw.get("working_dir", "./")
    if not isinstance(working_dir, str) or "://" in working_dir:
        raise OperatorError("runtime-env.working-dir", path.name, folder=working_dir)
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
    that is imported), lock-shipped-pythonpath (each entry contains its package, and none is
    missing), lock-shipped-shadowed (no file hides a library's module).
    `data["package"]` gives the totals and the largest folders.
    """
    report = Report("lock verify")
    name = env.path.name
    try:
        package = walk(env.working_dir, env.excludes, respect_gitignore)
    except OSError as error:
        values = {"file": error.filename, "reason": error.strerror}
        report.unknown("lock-shipped-size.unreadable", name, **values)
        return report
    check_size(report, package, name)
    _ignored(report, env, package)
    _python_path(report, env, lock, machine, package)
    known = known_modules(env.path.parent, lock)
    check_shadowed(report, package, known, env.python_path, packages_of(lock))
    report.data["package"] = {
        "bytes": package.bytes,
        "limit": LIMIT,
        "files": len(package.files),
        "dropped": len(package.dropped),
        "largest": [{"folder": key, "bytes": size} for key, size in package.groups()[:10]],
    }
    return report


def _ignored(report: Report, env: RuntimeEnv, package: Upload) -> None:
    rule = "lock-shipped-ignored"
    roots = [PurePosixPath(entry) for entry in env.python_path if not entry.startswith("/")]
    lost: list[str] = []
    others = 0
    for item in package.dropped:
        path = PurePosixPath(item.path)
        if path.suffix == ".py" and any(path.is_relative_to(root) for root in roots):
            lost.append(item.path)
            if len(lost) <= 10:
                report.failed(
                    "lock-shipped-ignored.python-dropped",
                    item.because,
                    file=item.path,
                    variable=IGNORE_GITIGNORE,
                )
        else:
            others += 1
            if others <= 10:
                report.note("lock-shipped-ignored.dropped", item.because, file=item.path)
    if len(lost) > 10:
        report.failed(
            "lock-shipped-ignored.more-python-dropped",
            env.path.name,
            count=len(lost) - 10,
            variable=IGNORE_GITIGNORE,
        )
    if others > 10:
        report.note("lock-shipped-ignored.more-dropped", env.path.name, count=others - 10)
    report.settle(rule)


def _python_path(
    report: Report, env: RuntimeEnv, lock: Lock, machine: Machine, package: Upload
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
            report.note("lock-shipped-pythonpath.absolute", env.path.name, entry=entry)
        elif entry in expected:
            _entry(report, env, entry, expected[entry], package)
        elif entry not in elsewhere and not _ships(package, entry):
            report.failed("lock-shipped-pythonpath.empty", env.path.name, entry=entry)
    for root, wanted in expected.items():
        if root not in entries:
            report.failed(
                "lock-shipped-pythonpath.missing-entry",
                env.path.name,
                root=root,
                package=wanted,
                machine=machine,
            )
    report.settle(rule)


def _ships(package: Upload, folder: str) -> bool:
    return any(path.startswith(f"{folder}/") for path in package.files)


def _entry(report: Report, env: RuntimeEnv, entry: str, wanted: str, package: Upload) -> None:
    """Check that the relative entry of PYTHONPATH contains its package, and that it is packed."""
    here = env.working_dir / entry
    place = f"{entry}/{wanted}"
    if _ships(package, place):
        return
    name = env.path.name
    known: dict[str, object] = {"entry": entry, "package": wanted}
    if not here.is_dir():
        report.failed("lock-shipped-pythonpath.no-folder", name, **known, folder=here)
        return
    known["place"] = place
    if (here / wanted).is_dir():
        report.failed("lock-shipped-pythonpath.not-packed", name, **known)
        return
    known["folder"] = here
    deeper = sorted(path for path in here.glob(f"*/{wanted}") if path.is_dir())
    if not deeper:
        report.failed("lock-shipped-pythonpath.no-package", name, **known)
        return
    nested = deeper[0].relative_to(env.working_dir)
    report.failed("lock-shipped-pythonpath.nested", name, **known, nested=nested)
