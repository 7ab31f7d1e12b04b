"""Inside an image: compare its packages with /etc/reprise/provenance.json."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import orjson
from packaging.utils import canonicalize_name

from reprise.core.errors import CannotTell
from reprise.core.findings import Report
from reprise.lock.model import MACHINES, Lock
from reprise.lock.read import machine_hash
from reprise.lock.rows import Row, ThisMachine

__all__ = ["PROVENANCE_ROW", "verify_provenance"]

PROVENANCE_ROW = "provenance"
_AGAIN = "build the image again (`reprise image build`), or use the lock that it was built from"


def verify_provenance(report: Report, lock: Lock, here: ThisMachine) -> Row:
    """The row of the image of this container; its state is also recorded in `report`.

    Drift: built from another state of the lock, or packages that are not those of the build.
    Unknown: the file or an interpreter that it names cannot be read.
    """
    row = Row(PROVENANCE_ROW, "ok", message=str(here.provenance), fix=_AGAIN)
    try:
        about = orjson.loads(here.provenance.read_bytes())
        machine, row.expected = about["machine"], about["lock_sha256"]
        frozen: Mapping[str, list[str]] = dict(about["freeze"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        row.state, row.message = "unknown", f"{here.provenance} cannot be read: {error}"
        report.unknown("provenance.unreadable", row.entry, reason=row.message)
        return row
    row.found = machine_hash(lock, machine) if machine in MACHINES else f"unknown machine {machine}"
    if row.found != row.expected:
        row.state, row.message = "drift", "the image was built from another state of the lock"
        report.failed("provenance.lock", row.entry)
        return row
    try:
        moved = [text for python, lines in frozen.items() for text in _moved(here, python, lines)]
    except CannotTell as error:
        row.state, row.message = "unknown", f"{error.where}: {error.message}"
        report.unknown("provenance.unreadable", row.entry, reason=row.message)
        return row
    if moved:
        row.state, row.expected, row.found = "drift", "as built", ", ".join(moved[:5])
        report.failed("provenance.packages", row.entry, count=len(moved), packages=row.found)
        return row
    report.passed(PROVENANCE_ROW)
    return row


def _moved(here: ThisMachine, python: str, lines: list[str]) -> list[str]:
    """Packages of an interpreter that differ from those at the time of the build."""
    path = here.root / python if "/" in python else Path(shutil.which(python) or python)
    have: dict[str, str] = {
        name: item.version for name, item in here.installed(path).distributions.items()
    }
    built: dict[str, str] = {}
    for line in lines:
        name, _, version = line.partition("==")
        built[canonicalize_name(name)] = version
    return [
        f"{name} {have.get(name, 'absent')} (built with {built.get(name, 'none')})"
        for name in sorted(have.keys() | built.keys())
        if have.get(name) != built.get(name)
    ]
