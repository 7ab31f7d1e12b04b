"""`reprise setup`: install the locked trees and environments on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.rules import render
from reprise.lock.model import Lock, Machine
from reprise.lock.read import entries_of, read_lock, resolve_name
from reprise.trees.environments import place_environment
from reprise.trees.setup import OnTree, setup_trees
from reprise.trees.sources import Mirror

__all__ = ["PLACED", "Unpacked", "setup"]

PLACED = ("tree", "environment")
"""The kinds of entries that `setup` itself installs."""

# What `setup` leaves to another command.
_ELSEWHERE = {
    "data": "`reprise data fetch data.{}` fetches it",
    "model": "`reprise model fetch {} FOLDER` fetches it",
    "image": "the container engine pulls it; `make images` builds on it",
    "package": "it is in the image or among the wheels of a bundle",
    "shipped": "it is part of the project",
}


class Unpacked:
    """What a bundle has already unpacked for `setup`, by entry name; empty without a bundle."""

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
    unpacked: Unpacked | None = None,
) -> Report:
    """Install the named entries, or all of `machine`: its source trees and environments.

    Each entry is a rule of the report; one that fails stops no other. Entries that another command
    installs are noted with that command. Raises OperatorError for a lock or name that is wrong.
    """
    lock = read_lock(lock_path)
    full = [resolve_name(lock, name, PLACED) for name in names]
    chosen = full or entries_of(lock, machine)
    unpacked = unpacked or Unpacked()
    root = lock_path.parent
    trees = {name: lock.tree[name] for name in _of(chosen, "tree")}
    report = setup_trees(root, trees, mirrors, on_tree, unpacked.trees)
    for name in _of(chosen, "environment"):
        _environment(report, lock, root, name, unpacked)
    for name in chosen:
        kind, _, short = name.partition(".")
        if kind == "tree" and lock.tree[short].path is None:
            report.note("setup-note.in-image", name, origin=lock.tree[short].from_image)
        elif kind in _ELSEWHERE and (full or kind != "package"):
            report.note("setup-note.other-command", name, command=_ELSEWHERE[kind].format(short))
    report.data["machine"] = machine
    if not report.checks:
        report.passed("setup")
    return report


def _of(names: Sequence[str], kind: str) -> list[str]:
    return [name.partition(".")[2] for name in names if name.startswith(f"{kind}.")]


def _environment(report: Report, lock: Lock, root: Path, name: str, unpacked: Unpacked) -> None:
    rule = f"environment.{name}"
    try:
        place_environment(root, name, lock.environment[name], unpacked.wheels.get(name))
    except OperatorError as error:
        report.failed(rule, error.where, error.message, error.fix)
    except FileNotFoundError as error:
        message, fix = render("environment.file-missing", {"file": error.filename})
        report.failed(rule, str(error.filename), message, fix)
    else:
        report.passed(rule)
