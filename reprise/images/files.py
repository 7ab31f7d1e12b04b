"""Which files the build of an image gets: those that git tracks, with one date and plain modes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file, sha256_text
from reprise.lock.model import Lock, Machine
from reprise.lock.requirements import read_pins
from reprise.machines import registry as machines
from reprise.trees.checkout import Standing, inspect
from reprise.trees.git import GitError, git

__all__ = ["KINDS", "Kind", "kind_named", "lay_context", "revision_of"]

# 1980-01-01: wheels are zip files, which know no earlier date.
EPOCH = 315532800
WHEELS = "docker/wheels"


@dataclass(frozen=True, slots=True)
class Kind:
    """One image: its name, the machine of the lock that it is for, and what its build needs.

    `files` are paths below the project, `trees` checkouts of the lock, `requirements` files whose
    packages may come as wheels.
    """

    name: str
    machine: Machine
    files: tuple[str, ...]
    trees: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()


_ALL = ("docker/common", "versions.lock")
_PROJECT = ("Makefile", "README.md", "LICENSE", "pyproject.toml", "runtime_env.yaml")
_CODE = ("plugins", "recipes", "reprise", "requirements", "scripts")


def _kind(machine: machines.Machine) -> Kind:
    """A vendor's image is built on its locked base; the cpu image holds the whole project."""
    folder = f"docker/{machine.image}"
    if machine.image != "cpu":
        return Kind(machine.image, machine.lock, (*_ALL, folder), machine.image_trees)
    return Kind(
        machine.image,
        machine.lock,
        (*_ALL, *_PROJECT, folder, *_CODE),
        requirements=("requirements/operator.txt", "requirements/rehearsal.txt"),
    )


KINDS = {item.image: _kind(item) for item in machines.machines() if item.image}


def kind_named(name: str) -> Kind:
    """The image of the machine called `name`. Raises OperatorError."""
    machine = machines.machine_named(name)
    if machine.image not in KINDS:
        built = machines.names_shown(lambda item: item.image in KINDS)
        raise OperatorError("image.docker-image-machine", name, built=built)
    return KINDS[machine.image]


def revision_of(root: Path) -> str:
    """The commit of the project, with -dirty where tracked files differ from it; '' without git."""
    try:
        commit = git("rev-parse", "HEAD", cwd=root).strip()
        changed = git("status", "--porcelain", "--untracked-files=no", cwd=root).strip()
    except GitError:
        return ""
    return f"{commit}-dirty" if changed else commit


def lay_context(
    root: Path, kind: Kind, lock: Lock, folder: Path, wheels: Iterable[Path] = ()
) -> str:
    """Fill the empty `folder` with what the build of `kind` gets; the SHA-256 of all of it.

    `wheels` are folders: files of packages that the image installs are taken from them. The hash is
    over paths, modes and contents (of wheels over their names: their contents are locked). Raises
    OperatorError when a checkout that belongs into the image is not the locked commit.
    """
    lines: list[str] = []
    for path in _tracked(root, kind.files):
        lines.append(_place(root / path, folder / path, path))
    for name in kind.trees:
        lines += _tree(root, lock, name, folder)
    # Wheels that a site adds: not tracked.
    site = f"docker/{kind.name}/site"
    for source in sorted(file for file in (root / site).rglob("*") if file.is_file()):
        name = str(source.relative_to(root))
        lines.append(_place(source, folder / name, name))
    (folder / WHEELS).mkdir(parents=True, exist_ok=True)
    (folder / site).mkdir(parents=True, exist_ok=True)
    for wheel in _wanted(root, kind, lock, [*wheels, root / WHEELS]):
        target = folder / WHEELS / wheel.name
        if not target.exists():
            _link(wheel, target)
            lines.append(f"wheel {wheel.name}")
    for place in (place for place in sorted(folder.rglob("*"), reverse=True) if place.is_dir()):
        place.chmod(0o755)
        os.utime(place, (EPOCH, EPOCH))
    return sha256_text("\n".join(sorted(lines)))


def _tracked(root: Path, places: Iterable[str]) -> list[str]:
    """Files below `places`: tracked ones in a checkout, all without caches elsewhere."""
    if (root / ".git").exists():
        listed = git("ls-files", "-z", "--", *places, cwd=root).split("\0")
        return sorted(path for path in listed if path and (root / path).is_file())
    found: list[str] = []
    for place in places:
        start = root / place
        files = start.rglob("*") if start.is_dir() else iter([start])
        found += [str(path.relative_to(root)) for path in files if _counts(path)]
    return sorted(found)


def _counts(path: Path) -> bool:
    made = ("__pycache__", "build")
    egg = any(part.endswith(".egg-info") for part in path.parts)
    return path.is_file() and not egg and not any(part in made for part in path.parts)


def _place(source: Path, target: Path, name: str) -> str:
    """Copy one file with a plain mode and the one date; its line for the hash."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    mode = 0o755 if source.stat().st_mode & 0o100 else 0o644
    target.chmod(mode)
    os.utime(target, (EPOCH, EPOCH))
    return f"{name} {mode:o} {sha256_file(source)}"


def _tree(root: Path, lock: Lock, name: str, folder: Path) -> Iterator[str]:
    """A checkout's tracked files; it must be exactly the locked commit."""
    tree = lock.tree[name]
    place = root / (tree.path or "")
    found = inspect(place, tree.commit or "", tree.tree)
    if tree.commit is None or tree.path is None or found.standing is not Standing.OK:
        message = f"{place} is {found.standing.value}, not the locked commit"
        raise OperatorError("image-tree", f"tree.{name}", message, f"`reprise setup tree.{name}`")
    for path in _tracked(place, (tree.import_package or ".",)):
        yield _place(place / path, folder / tree.path / path, f"{tree.path}/{path}")


def _wanted(root: Path, kind: Kind, lock: Lock, folders: Iterable[Path]) -> list[Path]:
    """Wheels in `folders` whose package the image installs, in the order of their names."""
    names = {pin.name for file in kind.requirements for pin in read_pins(root / file)}
    names |= {
        canonicalize_name(package.name)
        for package in lock.package.values()
        if kind.machine in package.machines
    }
    found: dict[str, Path] = {}
    for path in (path for folder in folders for path in sorted(folder.glob("*.whl"))):
        try:
            name, _, _, _ = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        if name in names:
            found.setdefault(path.name, path)
    return [found[name] for name in sorted(found)]


def _link(source: Path, target: Path) -> None:
    """The same file under a second name where the file system allows it, else a copy."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
