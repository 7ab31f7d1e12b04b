"""Inside an image: is what runs here still what /etc/reprise/provenance.json says was built?"""

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
from reprise.lock.rows import Row, Site

__all__ = ["PROVENANCE_ROW", "verify_provenance"]

PROVENANCE_ROW = "provenance"
_AGAIN = "build the image again (`reprise image build`), or use the lock that it was built from"


def verify_provenance(report: Report, lock: Lock, site: Site) -> Row:
    """The row of the image that this runs in; its state is also recorded in `report`.

    Drift: built from another state of the lock, or packages that are not those of the build.
    Unknown: the file or an interpreter that it names cannot be read.
    """
    row = Row(PROVENANCE_ROW, "ok", message=str(site.provenance), fix=_AGAIN)
    try:
        about = orjson.loads(site.provenance.read_bytes())
        machine, row.expected = about["machine"], about["lock_sha256"]
        frozen: Mapping[str, list[str]] = dict(about["freeze"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        row.state, row.message = "unknown", f"{site.provenance} cannot be read: {error}"
        report.unknown(PROVENANCE_ROW, row.entry, row.message, row.fix)
        return row
    row.found = machine_hash(lock, machine) if machine in MACHINES else f"no machine {machine}"
    if row.found != row.expected:
        row.state, row.message = "drift", "the image was built from another state of the lock"
        report.failed(PROVENANCE_ROW, row.entry, f"drift: {row.message}", row.fix)
        return row
    try:
        moved = [text for python, lines in frozen.items() for text in _moved(site, python, lines)]
    except CannotTell as error:
        row.state, row.message = "unknown", f"{error.where}: {error.message}"
        report.unknown(PROVENANCE_ROW, row.entry, row.message, row.fix)
        return row
    if moved:
        row.state, row.expected, row.found = "drift", "as built", ", ".join(moved[:5])
        told = f"drift: {len(moved)} packages are not those of the build: {row.found}"
        report.failed(PROVENANCE_ROW, row.entry, told, "start the image anew")
        return row
    report.passed(PROVENANCE_ROW)
    return row


def _moved(site: Site, python: str, lines: list[str]) -> list[str]:
    """What an interpreter has now and had not when the image was built, or the other way round."""
    path = site.root / python if "/" in python else Path(shutil.which(python) or python)
    have: dict[str, str] = {
        name: item.version for name, item in site.installed(path).distributions.items()
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
