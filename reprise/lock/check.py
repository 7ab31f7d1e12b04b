"""Check versions.lock itself; nothing outside the project's folder is read."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file
from reprise.core.findings import Report
from reprise.lock.lines import Lines, line_of, locate
from reprise.lock.model import MACHINES, Environment, Lock, Shipped, Tree
from reprise.lock.read import LockError, machine_hash, parse_lock, read_text
from reprise.lock.requirements import pins_sha256, read_pins

__all__ = ["check_lock"]

_UPPER = re.compile(r"(?=.*[A-F])[0-9A-Fa-f]{40}")


def check_lock(path: Path) -> Report:
    """Check the lock at `path`: its form, that entries are pinned and agree with one another.

    An entry that is not pinned is a warning when it says why (`unpinned`), else an error. The
    requirements files of its environments are compared with their digests. Every problem
    names its line. `data["machines"]` gives each machine's hash and its unpinned entries.
    """
    report = Report("lock check")
    try:
        text = read_text(path)
        lock = parse_lock(text, path.name)
    except LockError as error:
        return error.report("lock check")
    lines = locate(text)
    report.passed("lock-toml")
    report.passed("lock-schema")
    _pinned(report, lock, lines, path.name)
    _normal(report, tomllib.loads(text), lines, path.name)
    _paths(report, lock, lines, path.name)
    _contradictions(report, lock, lines, path.name)
    for name, environment in lock.environment.items():
        where = f"{path.name}:{line_of(lines, ('environment', name))}"
        _environment(report, path.parent, name, environment, where)
    report.settle("lock-environment")
    for name, shipped in lock.shipped.items():
        where = f"{path.name}:{line_of(lines, ('shipped', name))}"
        _shipped(report, path.parent, name, shipped, where)
    report.settle("lock-shipped")
    report.data["machines"] = {
        machine: {
            "sha256": machine_hash(lock, machine),
            "unpinned": [name for name, entry in lock.entries(machine) if entry.missing],
        }
        for machine in MACHINES
        if any(True for _ in lock.entries(machine))
    }
    return report


def _pinned(report: Report, lock: Lock, lines: Lines, file: str) -> None:
    rule = "lock-pinned"
    for name, entry in lock.entries():
        where = f"{file}:{line_of(lines, tuple(name.split('.', 1)))}"
        if not entry.missing:
            if entry.unpinned:
                report.warn("lock-pinned.stale-reason", where, name=name)
            continue
        keys = " and ".join(entry.missing)
        image = name.startswith("image.")
        command = f"reprise lock image {name} --write" if image else f"reprise lock update {name}"
        if entry.unpinned and isinstance(entry, Tree) and entry.from_image:
            known = {"keys": keys, "reason": entry.unpinned, "place": entry.from_image}
            report.warn("lock-pinned.in-image", where, name=name, **known)
        elif entry.unpinned:
            report.warn(
                "lock-pinned.reason-given",
                where,
                name=name,
                keys=keys,
                reason=entry.unpinned,
                command=command,
            )
        else:
            report.failed("lock-pinned.missing", where, name=name, keys=keys, command=command)
    report.settle(rule)


def _normal(report: Report, raw: dict[str, Any], lines: Lines, file: str) -> None:
    """Note hashes that are written in upper case: they are read as lower case."""
    for kind, entries in raw.items():
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            for key, value in entry.items():
                if isinstance(value, str) and _UPPER.fullmatch(value):
                    where = f"{file}:{line_of(lines, (kind, name, key))}"
                    path = f"{kind}.{name}.{key}"
                    report.note("lock-case.upper", where, key=path, value=value.lower())
    report.passed("lock-case")


def _paths(report: Report, lock: Lock, lines: Lines, file: str) -> None:
    """No two entries of one machine may use the same path."""
    rule = "lock-paths"
    places: dict[tuple[str, str], str] = {}
    for name, entry in lock.entries():
        place = getattr(entry, "path", None) or getattr(entry, "folder", None)
        if place is None:
            continue
        others = {places.setdefault((place, machine), name) for machine in entry.machines}
        for other in sorted(others - {name}):
            where = f"{file}:{line_of(lines, (*name.split('.', 1), 'path'))}"
            report.failed("lock-paths.shared", where, name=name, other=other, path=place)
    report.settle(rule)


def _contradictions(report: Report, lock: Lock, lines: Lines, file: str) -> None:
    """Recorded contradictions must name entries that exist and requirements that can be read."""
    rule = "lock-contradiction"
    known = {name for name, _ in lock.entries()} | {"python", "absent"}
    for name, item in lock.contradiction.items():
        named = [item.locked] if item.kind == "guide" else [item.declared_by, item.locked]
        for key, value in zip(("locked", "declared_by"), reversed(named), strict=False):
            if value not in known:
                where = f"{file}:{line_of(lines, ('contradiction', name, key))}"
                report.failed("lock-contradiction.entry", where, name=name, value=value)
        if item.kind == "guide":
            continue
        try:
            Requirement(item.declares)
        except InvalidRequirement:
            where = f"{file}:{line_of(lines, ('contradiction', name, 'declares'))}"
            report.failed(
                "lock-contradiction.requirement", where, name=name, declares=item.declares
            )
    report.settle(rule)


def _shipped(report: Report, root: Path, name: str, shipped: Shipped, where: str) -> None:
    """The shipped files must be the locked ones."""
    folder = shipped.path.rpartition("/")[0]
    for file, expected in shipped.digests().items():
        path = root / folder / file
        if not path.is_file():
            report.failed("lock-shipped.missing", where, name=name, path=path, folder=folder)
        elif (found := sha256_file(path)) != expected:
            report.failed(
                "lock-shipped.sha256",
                where,
                path=path,
                found=found,
                expected=expected,
                folder=folder,
            )
    weights = root / shipped.path
    if weights.is_file() and shipped.bytes not in (None, size := weights.stat().st_size):
        report.failed(
            "lock-shipped.bytes",
            where,
            path=weights,
            found=size,
            expected=shipped.bytes,
            folder=folder,
        )


def _environment(
    report: Report, root: Path, name: str, environment: Environment, where: str
) -> None:
    path = root / environment.requirements
    files = {environment.requirements: environment.sha256, **environment.extra}
    try:
        for file, expected in files.items():
            found = sha256_file(root / file)
            if expected is not None and found != expected:
                report.failed(
                    "lock-environment.sha256",
                    where,
                    file=file,
                    found=found,
                    expected=expected,
                    name=name,
                )
        pins = read_pins(path)
    except FileNotFoundError as error:
        report.failed("lock-environment.missing", where, file=error.filename)
        return
    except OperatorError as error:
        report.failed("lock-environment", error.where, error.message, error.fix)
        return
    expected = environment.pins_sha256
    if expected is not None and pins_sha256(pins) != expected:
        report.failed(
            "lock-environment.pins",
            where,
            file=environment.requirements,
            found=pins_sha256(pins),
            expected=expected,
            name=name,
        )
