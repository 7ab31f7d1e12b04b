"""Preconditions of a bundle, checked before anything is fetched or packed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from reprise.bundle.bare import UNPART, bare_tree, further_files, pinned_elsewhere
from reprise.bundle.entries import adding
from reprise.bundle.site import read_trim
from reprise.core.errors import CannotTell, OperatorError
from reprise.core.files import sha256_file
from reprise.core.findings import Report
from reprise.core.pip import find_pip
from reprise.images.carry import images_to_archive
from reprise.lock.model import Data, Environment, Image, Lock, Machine, Package, Shipped, Tree
from reprise.lock.read import data_folder
from reprise.lock.requirements import read_pins
from reprise.machines.registry import machine_named
from reprise.trees.checkout import Standing, inspect
from reprise.trees.git import GitError, git

__all__ = ["check_ready", "tree_places"]


def check_ready(
    root: Path,
    lock: Lock,
    chosen: Sequence[str],
    machine: Machine,
    with_images: bool,
    also: Sequence[Path],
    report: Report,
) -> bool:
    """Whether every chosen entry can go into the bundle; each that cannot is in `report`.

    Reads checkouts and data files, and runs pip and the container engine; no network, nothing is
    written. Downloads and packing, which take minutes, follow it.
    """
    before = len(report.checks)
    if (root / ".git").exists():
        try:
            git("rev-parse", "--git-dir", cwd=root)
        except GitError as error:
            report.unknown("bundle-project", error.where, error.message, error.fix)
    for name in chosen:
        for check in _checks(root, lock, name, chosen, machine, with_images):
            with adding(name, report):
                check()
    if any(isinstance(lock.entry(name), Environment | Package) for name in chosen):
        with adding("pip", report):
            find_pip()
    if machine_named(machine).bare:
        with adding("bundle-also", report):
            further_files(root, also)
        with adding("bundle-script", report):
            _there(root, UNPART)
    return len(report.checks) == before


def _checks(
    root: Path,
    lock: Lock,
    name: str,
    chosen: Sequence[str],
    machine: Machine,
    with_images: bool,
) -> Iterator[Callable[[], object]]:
    """What must hold for one entry; each check raises an OperatorError of its own."""
    entry, short = lock.entry(name), name.partition(".")[2]
    bare = machine_named(machine).bare
    match entry:
        case Tree() if entry.path is not None and bare:
            yield lambda: bare_tree(root, short, entry)
        case Tree() if entry.path is not None:
            yield lambda: _tree(root, short, entry)
        case Environment():
            yield lambda: _environment(root, lock, entry, machine)
        case Package() if bare:
            yield lambda: pinned_elsewhere(root, lock, chosen, entry)
        case Data() if not bare:
            yield lambda: _data(root, short, entry)
        case Shipped():
            yield lambda: _shipped(root, entry)
        case Image() if with_images and not bare:
            yield lambda: images_to_archive(lock, short, entry)
        case _:
            pass


def tree_places(tree: Tree) -> dict[str, tuple[str | None, str | None]]:
    """Commit and tree hash of a tree and of its fetched submodules, by the path below it."""
    places = {"": (tree.commit, tree.tree)}
    return places | {path: (sub.commit, sub.tree) for path, sub in tree.submodule.items()
                     if sub.fetch}  # fmt: skip


def _tree(root: Path, name: str, tree: Tree) -> None:
    for below, (commit, expected) in tree_places(tree).items():
        folder = root / (tree.path or "") / below
        found = inspect(folder, commit or "", expected)
        if found.standing in (Standing.MISSING, Standing.SUPERSEDED):
            where = f"tree.{name}"
            raise OperatorError(
                "bundle-tree.absent", where, folder=folder, commit=commit, name=name
            )
        if commit is None or found.standing is not Standing.OK:
            raise OperatorError(
                "bundle-tree.standing",
                f"tree.{name}",
                folder=root / (tree.path or ""),
                standing=found.standing.value,
                commit=commit,
                name=name,
            )


def _environment(root: Path, lock: Lock, environment: Environment, machine: Machine) -> None:
    """Its requirements files can be read; on a machine without pip also the trim file."""
    if not machine_named(machine).bare:
        for file in (environment.requirements, *environment.extra):
            _there(root, file)
            read_pins(root / file)
        return
    if environment.trim is None:
        return
    operators = [one for one in lock.environment.values() if "operator" in one.machines]
    for one in (environment, *operators):
        _there(root, one.requirements)
        read_pins(root / one.requirements)
        if one.trim is not None:
            _there(root, one.trim)
            read_trim(root / one.trim)


def _shipped(root: Path, shipped: Shipped) -> None:
    folder = shipped.path.rpartition("/")[0]
    for file, expected in shipped.digests().items():
        path = f"{folder}/{file}"
        _there(root, path)
        found = sha256_file(root / path)
        if found != expected:
            raise OperatorError(
                "bundle-file.sha256", path, found=found, expected=expected, path=path
            )


def _there(root: Path, file: str) -> None:
    if not (root / file).is_file():
        raise OperatorError("bundle-file.missing", str(root / file), file=file, root=root)


def _data(root: Path, name: str, data: Data) -> None:
    path, where = data_folder(root) / data.path, f"data.{name}"
    if not path.is_file():
        raise OperatorError("bundle-data.missing", where, path=path, name=name)
    if data.sha256 is None:
        raise CannotTell("bundle-data.no-sha256", where, name=name)
    found = sha256_file(path)
    if found != data.sha256:
        raise OperatorError(
            "bundle-data.sha256", where, path=path, found=found, expected=data.sha256, name=name
        )
