"""`reprise setup`: bring what the lock names onto this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.lock.model import Lock, Machine
from reprise.lock.read import entries_of, read_lock, resolve_name
from reprise.trees.environments import place_environment
from reprise.trees.setup import OnTree, setup_trees
from reprise.trees.sources import Mirror

__all__ = ["PLACED", "Brought", "setup"]

PLACED = ("tree", "environment")
"""The kinds of entries that `setup` itself places."""

# What `setup` leaves to another command.
_ELSEWHERE = {
    "data": "`reprise data fetch data.{}` fetches it",
    "model": "`reprise model fetch {} FOLDER` fetches it",
    "image": "the container engine pulls it; `make images` builds on it",
    "package": "the image brings it, or the wheels of a bundle",
    "shipped": "it is part of the project",
}


class Brought:
    """What a bundle has already laid out for `setup`, by entry name; empty without a bundle."""

    def __init__(
        self, trees: dict[str, Path] | None = None, wheels: dict[str, Path] | None = None
    ) -> None:
        self.trees = trees or {}
        self.wheels = wheels or {}


def setup(
    lock_path: Path,
    names: Sequence[str],
    machine: Machine,
    mirrors: Sequence[Mirror] = (),
    on_tree: OnTree = lambda *_: None,
    brought: Brought | None = None,
) -> Report:
    """Bring the named entries, or all of `machine`: its source trees and environments.

    Each entry is a rule of the report; one that fails stops no other. Entries that another command
    brings are noted with that command. Raises OperatorError for a lock or name that is wrong.
    """
    lock = read_lock(lock_path)
    full = [resolve_name(lock, name, PLACED) for name in names]
    chosen = full or entries_of(lock, machine)
    brought = brought or Brought()
    root = lock_path.parent
    trees = {name: lock.tree[name] for name in _of(chosen, "tree")}
    report = setup_trees(root, trees, mirrors, on_tree, brought.trees)
    for name in _of(chosen, "environment"):
        _environment(report, lock, root, name, brought)
    for name in chosen:
        kind, _, short = name.partition(".")
        if kind == "tree" and lock.tree[short].path is None:
            report.note("setup-note.comes-image", name, from_image=lock.tree[short].from_image)
        elif kind in _ELSEWHERE and (full or kind != "package"):
            report.note("setup-note.setup", name, format=_ELSEWHERE[kind].format(short))
    report.data["machine"] = machine
    if not report.checks:
        report.passed("setup")
    return report


def _of(names: Sequence[str], kind: str) -> list[str]:
    return [name.partition(".")[2] for name in names if name.startswith(f"{kind}.")]


def _environment(report: Report, lock: Lock, root: Path, name: str, brought: Brought) -> None:
    rule = f"environment.{name}"
    try:
        place_environment(root, name, lock.environment[name], brought.wheels.get(name))
    except OperatorError as error:
        report.failed(rule, error.where, error.message, error.fix)
    except FileNotFoundError as error:
        report.failed(rule, str(error.filename), "is not there", "restore the file")
    else:
        report.passed(rule)
