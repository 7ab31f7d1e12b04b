"""Compare this machine with the lock: one row per entry: ok, drift, missing, dirty or unknown."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.files import sha256_file
from reprise.core.findings import Report
from reprise.flows.lock.weights import verify_model
from reprise.images.verify import verify_image
from reprise.lock.installed import Installed
from reprise.lock.model import (
    Data,
    Entry,
    Environment,
    Image,
    Lock,
    Model,
    Package,
    Shipped,
    Tree,
)
from reprise.lock.read import data_folder
from reprise.lock.requirements import Pin, pins_sha256, read_pins
from reprise.lock.rows import Row, ThisMachine, compare_files, unpinned
from reprise.trees.checkout import Standing, gitlinks, inspect
from reprise.trees.environments import rollout_options
from reprise.trees.git import GitError

__all__ = ["Row", "ThisMachine", "verify_entries"]


def verify_entries(lock: Lock, names: Sequence[str], here: ThisMachine) -> tuple[Report, list[Row]]:
    """Verify the entries `names` (each kind.name) on this machine.

    Every entry is a rule of the report: ok passes; drift, missing and dirty fail; an entry that
    could not be verified is unknown. No entry stops another.
    """
    report = Report("lock verify")
    rows: list[Row] = []
    for name in names:
        entry = lock.entry(name)
        if entry is None:
            continue
        row = _row(name, entry, here)
        rows.append(row)
        if row.state == "ok":
            report.passed(name)
        elif row.state == "unknown":
            report.unknown(name, name, row.message or "could not be verified", row.fix)
        else:
            text = f"expected {row.expected}, found {row.found}" if row.found else row.message
            message = (
                f"{row.state}: {text}{f' ({row.message})' if row.found and row.message else ''}"
            )
            report.failed(name, name, message, row.fix)
        for note in row.notes:
            report.note(name, name, note)
    return report, rows


def _row(name: str, entry: Entry, here: ThisMachine) -> Row:
    verifier = next(found for kind, found in _VERIFIERS if isinstance(entry, kind))
    try:
        return verifier(name, entry, here)
    except CannotTell as error:
        return Row(name, "unknown", message=f"{error.where}: {error.message}", fix=error.fix)
    except OperatorError as error:
        return Row(name, "drift", message=f"{error.where}: {error.message}", fix=error.fix)
    except OSError as error:
        said = f"{error.filename}: {error.strerror}"
        return Row(name, "unknown", message=said, fix="check the path and its permissions")


def _tree(name: str, tree: Tree, here: ThisMachine) -> Row:
    if tree.path is None:
        message = f"it is in the image ({tree.from_image}): verify it where the image runs"
        return Row(
            name,
            "unknown",
            tree.commit or "",
            message=message,
            fix="repeat the command in the image",
        )
    if tree.commit is None:
        return unpinned(name, tree)
    path = here.root / tree.path
    fetches = _fetches(name)
    found = inspect(path, tree.commit, tree.tree)
    row = Row(name, "ok", tree.commit, found.head)
    match found.standing:
        case Standing.MISSING:
            row.state, row.found, row.message = "missing", "", f"{path} does not exist"
            row.fix = fetches
        case Standing.FOREIGN:
            row.state, row.found, row.message = "drift", "", f"{path}: {found.problem}"
            row.fix = f"move it away; {fetches}"
        case Standing.UNKNOWN:
            row.state, row.message = "unknown", f"{path}: {found.problem}"
            row.fix = (
                f"git config --global --add safe.directory {_word(path)}, if the folder is trusted"
            )
        case Standing.DIRTY:
            files = found.changed + found.untracked
            row.state, row.expected = "dirty", "no change"
            row.found = f"{len(files)} changed or untracked files: {', '.join(files[:5])}"
            row.fix = f"git -C {_word(path)} status"
        case Standing.WRONG_TREE:
            row.state, row.expected, row.found = "drift", f"tree {tree.tree}", f"tree {found.tree}"
            row.fix = "correct the lock: `reprise lock update NAME --to COMMIT`"
        case Standing.MOVED | Standing.SUPERSEDED:
            row.state = "drift"
            row.fix = f"{fetches} if it is clean and yours to move; else lock the commit found"
        case Standing.OK if found.hidden:
            _hidden(row, path, found.hidden)
        case Standing.OK:
            _submodules(row, path, tree)
    return row


def _hidden(row: Row, path: Path, files: list[str]) -> None:
    """Ignored files that Python would import make a checkout dirty."""
    row.state, row.expected = "dirty", "no importable file that git ignores"
    row.found = f"{len(files)} ignored files that Python would import: {', '.join(files[:5])}"
    listing = f"git -C {_word(path)} ls-files --others --ignored --exclude-standard"
    row.fix = f"`{listing}`, then move them away"


def _word(path: Path) -> str:
    """The path as a word of a shell command."""
    return shlex.quote(str(path))


def _fetches(name: str) -> str:
    """By name: which machine's trees a bare `make setup` fetches depends on where it runs."""
    return f"`reprise setup {name}` fetches it"


def _submodules(row: Row, path: Path, tree: Tree) -> None:
    """Judge the submodules that the lock fetches; note those that it leaves out."""
    try:
        recorded = gitlinks(path, "HEAD")
    except GitError as error:
        row.state, row.message = "unknown", error.last_line
        return
    for place, commit in recorded.items():
        sub = tree.submodule.get(place)
        if sub is None or not sub.fetch:
            reason = f": {sub.note}" if sub and sub.note else ""
            row.notes.append(f"submodule {place} is left out on purpose{reason}")
            continue
        found = inspect(path / place, sub.commit, sub.tree)
        if found.standing is not Standing.OK or commit != sub.commit:
            row.state, row.expected = "drift", f"submodule {place} at {sub.commit}"
            row.found = f"{found.standing.value} {found.head}".strip()
            row.fix = _fetches(row.entry)
        elif found.hidden:
            _hidden(row, path / place, found.hidden)


def _data(name: str, data: Data, here: ThisMachine) -> Row:
    if data.sha256 is None:
        return unpinned(name, data)
    path = (here.data or data_folder(here.root)) / data.path
    row = Row(name, "ok", data.sha256)
    if not path.is_file():
        row.state, row.message = "missing", f"{path} does not exist"
        row.fix = f"`reprise data fetch {name.partition('.')[2]}`"
        return row
    size = path.stat().st_size
    if data.bytes is not None and size != data.bytes:
        row.state, row.expected, row.found = "drift", f"{data.bytes} bytes", f"{size} bytes"
    else:
        row.found = sha256_file(path)
        row.state = "ok" if row.found == data.sha256 else "drift"
    row.message = str(path)
    row.fix = f"move {path} away, then `reprise data fetch {name.partition('.')[2]}`"
    return row


def _shipped(name: str, shipped: Shipped, here: ThisMachine) -> Row:
    """Every file that is shipped, against its digest."""
    if shipped.sha256 is None:
        return unpinned(name, shipped)
    folder = (here.root / shipped.path).parent
    row = Row(name, "ok", shipped.sha256)
    fix = f"git checkout -- {shipped.path.rpartition('/')[0]}"
    return compare_files(row, folder, shipped.digests(), sha256_file, fix)


def _package(name: str, package: Package, here: ThisMachine) -> Row:
    if here.python is None:
        message = "no interpreter was given"
        return Row(name, "unknown", package.version, message=message, fix="--python PATH")
    found = here.installed(here.python).distributions.get(canonicalize_name(package.name))
    if found is None:
        message = f"not installed in {here.python}"
        return Row(name, "missing", package.version, message=message, fix=f"install {package.name}")
    state = "ok" if _same(package.version, found.version) else "drift"
    fix = f"install {package.name}=={package.version} (without its dependencies)"
    return Row(name, state, package.version, found.version, fix=fix)


def _same(locked: str, installed: str) -> bool:
    """Equal versions; a local part that only the installed one has (+cpu) makes no difference."""
    return SpecifierSet(f"=={locked}").contains(installed, prereleases=True)


def _environment(name: str, environment: Environment, here: ThisMachine) -> Row:
    file = here.root / environment.requirements
    pins = read_pins(file)
    if environment.pins_sha256 is not None and pins_sha256(pins) != environment.pins_sha256:
        found = pins_sha256(pins)
        fix = f"if the change is intended: `reprise lock update {name}`"
        return Row(name, "drift", environment.pins_sha256, found, str(file), fix)
    python = here.root / environment.folder / "bin" / "python"
    fix = f"scripts/venv.sh {name.partition('.')[2]}"
    if environment.trim is not None:
        fix = " ".join(("scripts/gpu/env.py", *rollout_options(environment)))
    if not python.exists():
        return Row(name, "missing", message=f"{python} does not exist", fix=fix)
    installed = here.installed(python)
    wrong = [text for pin in pins if (text := _wrong(pin, installed))]
    row = Row(name, "drift" if wrong else "ok", f"{len(pins)} pins", fix=fix)
    row.found = f"{len(wrong)} differ: {', '.join(wrong[:5])}" if wrong else row.expected
    return row


def _wrong(pin: Pin, installed: Installed) -> str:
    """How an installed distribution differs from its pin, or '' when it does not."""
    if pin.marker and not Marker(pin.marker).evaluate({**installed.markers, "extra": ""}):
        return ""
    found = installed.distributions.get(pin.name)
    if found is None:
        return f"{pin.name} is missing"
    return "" if _same(pin.version, found.version) else f"{pin.name} {found.version}"


_VERIFIERS: tuple[tuple[type[Entry], Callable[[str, Any, ThisMachine], Row]], ...] = (
    (Tree, _tree),
    (Data, _data),
    (Environment, _environment),
    (Package, _package),
    (Image, verify_image),
    (Model, verify_model),
    (Shipped, _shipped),
)
