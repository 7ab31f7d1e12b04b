"""Is versions.lock itself sound? Nothing outside the project's folder is looked at."""

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
from reprise.lock.model import MACHINES, Environment, Lock, Shipped
from reprise.lock.read import LockError, machine_hash, parse_lock, read_text
from reprise.lock.requirements import pins_sha256, read_pins

__all__ = ["check_lock"]

_UPPER = re.compile(r"(?=.*[A-F])[0-9A-Fa-f]{40}")


def check_lock(path: Path) -> Report:
    """Check the lock at `path`: its form, that entries are pinned and agree with one another.

    An entry that is not pinned is a warning when it says why (`unpinned`), else an error. The
    requirements files of its environments are compared with their digests. Every fault comes with
    its line. `data["machines"]` gives each machine's hash and what it lacks.
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
                message = f"{name} is pinned, yet `unpinned` says why it is not"
                report.warn(rule, where, message, "remove the key `unpinned`")
            continue
        lacks = " and ".join(entry.missing)
        image = name.startswith("image.")
        fix = f"`reprise lock image {name} --write`" if image else f"`reprise lock update {name}`"
        fix = f"{fix} resolves and writes it"
        if entry.unpinned:
            report.warn(rule, where, f"{name} is not pinned: no {lacks}; {entry.unpinned}", fix)
        else:
            fix = f"{fix}; if it cannot be known, say why in `unpinned`"
            report.failed(rule, where, f"{name} has no {lacks}", fix)
    report.settle(rule)


def _normal(report: Report, raw: dict[str, Any], lines: Lines, file: str) -> None:
    """Note hashes that are written in upper case: they are taken as lower case."""
    for kind, entries in raw.items():
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            for key, value in entry.items():
                if isinstance(value, str) and _UPPER.fullmatch(value):
                    where = f"{file}:{line_of(lines, (kind, name, key))}"
                    message = f"{kind}.{name}.{key} is read as {value.lower()}"
                    report.note("lock-case", where, message, "write it in lower case")
    report.passed("lock-case")


def _paths(report: Report, lock: Lock, lines: Lines, file: str) -> None:
    """No two entries of one machine may lie in one place."""
    rule = "lock-paths"
    places: dict[tuple[str, str], str] = {}
    for name, entry in lock.entries():
        place = getattr(entry, "path", None) or getattr(entry, "folder", None)
        if place is None:
            continue
        others = {places.setdefault((place, machine), name) for machine in entry.machines}
        for other in sorted(others - {name}):
            where = f"{file}:{line_of(lines, (*name.split('.', 1), 'path'))}"
            message = f"{name} and {other} both lie at {place}"
            report.failed(rule, where, message, "give one of them another path")
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
                message = f"contradiction.{name} names {value}, which is no entry of the lock"
                report.failed(rule, where, message, "name an entry as kind.name")
        if item.kind == "guide":
            continue
        try:
            Requirement(item.declares)
        except InvalidRequirement:
            where = f"{file}:{line_of(lines, ('contradiction', name, 'declares'))}"
            message = f"contradiction.{name}: {item.declares!r} is not a requirement"
            report.failed(rule, where, message, "write it as the declaring file does")
    report.settle(rule)


def _shipped(report: Report, root: Path, name: str, shipped: Shipped, where: str) -> None:
    """The shipped files must be the locked ones."""
    rule = "lock-shipped"
    folder = (root / shipped.path).parent
    fix = f"git checkout -- {shipped.path.rpartition('/')[0]}"
    for file, expected in shipped.digests().items():
        path = folder / file
        if not path.is_file():
            report.failed(rule, where, f"shipped.{name}: {path} does not exist", fix)
        elif (found := sha256_file(path)) != expected:
            message = f"{path} has sha256 {found}, the lock says {expected}"
            report.failed(rule, where, message, fix)
    weights = root / shipped.path
    if weights.is_file() and shipped.bytes not in (None, size := weights.stat().st_size):
        message = f"{weights} has {size} bytes, the lock says {shipped.bytes}"
        report.failed(rule, where, message, fix)


def _environment(
    report: Report, root: Path, name: str, environment: Environment, where: str
) -> None:
    rule = "lock-environment"
    fix = f"if the change is meant: `reprise lock update environment.{name}`"
    path = root / environment.requirements
    files = {environment.requirements: environment.sha256, **environment.extra}
    try:
        for file, expected in files.items():
            found = sha256_file(root / file)
            if expected is not None and found != expected:
                message = f"{file} has sha256 {found}, the lock says {expected}"
                report.failed(rule, where, message, fix)
        pins = read_pins(path)
    except FileNotFoundError as error:
        report.failed(rule, where, f"{error.filename} is not there", "restore the file")
        return
    except OperatorError as error:
        report.failed(rule, error.where, error.message, error.fix)
        return
    expected = environment.pins_sha256
    if expected is not None and pins_sha256(pins) != expected:
        message = f"the pins of {environment.requirements} have digest {pins_sha256(pins)}, "
        report.failed(rule, where, f"{message}the lock says {expected}", fix)
