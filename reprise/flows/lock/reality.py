"""`lock verify` as a whole: the entries, the declared requirements, and what Ray would pack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.flows.lock.remote import check_remote
from reprise.flows.lock.verify import verify_entries
from reprise.images.provenance import verify_provenance
from reprise.lock.contradict import Conflict, compare, in_installed, in_tree
from reprise.lock.model import Lock, Machine
from reprise.lock.read import entries_of, machine_hash, read_lock, resolve_name
from reprise.lock.rows import Row, ThisMachine
from reprise.machines.registry import machine_of_lock
from reprise.runs.ray.check_runtime_env import check_runtime_env, read_runtime_env
from reprise.trees.sources import Mirror

__all__ = ["RUNTIME_ENV", "verify"]

# Verified by this name, as if it were an entry.
RUNTIME_ENV = "runtime_env"


def verify(
    lock_path: Path,
    names: Sequence[str],
    machine: Machine,
    here: ThisMachine,
    plain_ray: bool = False,
    remote: Sequence[Mirror] | None = None,
) -> Report:
    """Verify the named entries, or all that count for `machine`, on this machine.

    Without names, the requirements that checkouts and environments declare are compared with the
    lock as well, an image that this runs in with what it says of itself, and what Ray would pack
    is checked where jobs are packed. `plain_ray` looks at
    the package as `ray job submit` makes it, by every .gitignore. With `remote` (mirrors, or
    none) servers are asked whether the tags still lead to what is locked.
    `data`: `machine`, `sha256` (its hash), `rows` (one per entry). Raises OperatorError.
    """
    lock = read_lock(lock_path)
    chosen = [name for name in names if name != RUNTIME_ENV]
    full = [resolve_name(lock, name) for name in chosen]
    if not names:
        full = entries_of(lock, machine)
    report, rows = verify_entries(lock, full, here)
    if not names:
        _contradictions(report, lock, machine, rows, here)
        if here.provenance.is_file():
            rows.append(verify_provenance(report, lock, here))
    if RUNTIME_ENV in names or (not names and machine_of_lock(machine).packed):
        _runtime_env(report, lock, machine, here.root, plain_ray)
    if remote is not None:
        check_remote(report, lock, full, remote)
    report.data |= {
        "machine": machine,
        "sha256": machine_hash(lock, machine),
        "rows": [row.to_json() for row in rows],
    }
    return report


def _contradictions(
    report: Report, lock: Lock, machine: Machine, rows: Sequence[Row], here: ThisMachine
) -> None:
    """Read what the entries that are here declare, and compare it with the lock."""
    found: list[Conflict] = []
    read: set[str] = set()
    for row in rows:
        kind, _, name = row.entry.partition(".")
        if row.state not in ("ok", "dirty"):
            continue
        try:
            if kind == "tree":
                found += in_tree(lock, machine, name, here.root / (lock.tree[name].path or ""))
            elif kind == "environment":
                python = here.root / lock.environment[name].folder / "bin" / "python"
                found += in_installed(name, here.installed(python))
            else:
                continue
        except (OSError, ValueError) as error:
            report.unknown("contradiction.unreadable", row.entry, reason=error)
            continue
        read.add(row.entry)
    compare(report, lock, machine, found, read)


def _runtime_env(report: Report, lock: Lock, machine: Machine, root: Path, plain_ray: bool) -> None:
    try:
        env = read_runtime_env(root / "runtime_env.yaml")
    except OperatorError as error:
        report.failed(error.rule, error.where, error.message, error.fix)
        return
    shipped = check_runtime_env(env, lock, machine, plain_ray)
    report.absorb(shipped)
    report.data |= shipped.data
