"""Install the locked source trees: exactly the locked commits, whole or not at all.

A tree is fetched and checked out under third_party/.setup and takes its place by a rename, so that
no interruption leaves half a tree where a run would import it.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.files import hold_lock
from reprise.core.findings import Report
from reprise.core.parallel import in_parallel
from reprise.core.rules import render
from reprise.lock.model import Submodule, Tree
from reprise.trees.checkout import Checkout, Standing, gitlinks, inspect
from reprise.trees.fetch import OnPhase
from reprise.trees.git import stop_running
from reprise.trees.materialize import materialize, system_error
from reprise.trees.sources import Mirror, urls_for

__all__ = ["OnTree", "Placed", "alone", "place_tree", "setup_trees"]

# Called with the tree's name, what is being done, and how far it is (0 to 1 or None).
OnTree = Callable[[str, str, float | None], None]

_PARALLEL = 4


@dataclass(slots=True)
class Placed:
    """What became of one tree: `state` is fetched, already or replaced."""

    name: str
    state: str
    path: Path
    commit: str
    tree: str
    url: str = ""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The tree's row of `reprise setup --json`."""
        keys = ("name", "state", "commit", "tree", "url", "notes")
        row = {key: getattr(self, key) for key in keys}
        return row | {"path": str(self.path), "seconds": round(self.seconds, 2)}


Outcome = Placed | OperatorError | None


def setup_trees(
    root: Path,
    trees: dict[str, Tree],
    mirrors: Sequence[Mirror] = (),
    on_tree: OnTree = lambda *_: None,
    bundles: dict[str, Path] | None = None,
) -> Report:
    """Place every tree of `trees` below `root`, some at a time; one that fails stops no other.

    All checkouts are looked at first: where one is in the way, nothing is fetched.
    `bundles` gives, by name, git bundles to fetch from instead of the network.
    """
    report = Report("setup")
    stopped = threading.Event()

    def one(name: str, work: Callable[[OnPhase], Placed | None]) -> Outcome:
        def on_phase(phase: str, done: float | None) -> None:
            if stopped.is_set():
                raise KeyboardInterrupt
            on_tree(name, phase, done)

        try:
            placed = work(on_phase)
        except OperatorError as error:
            on_tree(name, "failed", None)
            return error
        if placed is not None:
            on_tree(name, placed.state, 1.0)
        return placed

    def look(name: str) -> Outcome:
        return one(name, partial(_look, root, name, trees[name]))

    def place(name: str) -> Outcome:
        bundle = (bundles or {}).get(name)
        return one(name, partial(place_tree, root, name, trees[name], mirrors, bundle=bundle))

    def stop() -> None:
        stopped.set()
        stop_running()

    here = [name for name, tree in trees.items() if tree.path is not None]
    found = dict(zip(here, in_parallel(look, here, _PARALLEL, stop), strict=True))
    if not any(isinstance(result, OperatorError) for result in found.values()):
        left = [name for name, result in found.items() if result is None]
        found |= zip(left, in_parallel(place, left, _PARALLEL, stop), strict=True)
    _record(report, trees, found)
    return report


def _record(report: Report, trees: dict[str, Tree], found: dict[str, Outcome]) -> None:
    """Each tree's rule and row; None in `found` was not begun."""
    rows: list[dict[str, Any]] = []
    for name, result in found.items():
        rule = f"tree.{name}"
        if result is None:
            message, fix = render("setup-not-begun.refused", {"name": name})
            report.unknown(rule, rule, message, fix)
        elif isinstance(result, OperatorError):
            record = report.unknown if isinstance(result, CannotTell) else report.failed
            where = rule if result.where == trees[name].commit else f"{rule} ({result.where})"
            record(rule, where, result.message, result.fix)
        else:
            report.passed(rule)
            rows.append(result.to_json())
            for note in result.notes:
                report.note("setup-note.fetched", rule, note=note)
    report.data["trees"] = rows


def _look(root: Path, name: str, tree: Tree, on_phase: OnPhase) -> Placed | None:
    """The tree as it stands, None when it has to be fetched. Raises what refuses its checkout."""
    on_phase("checking", None)
    return _settled(root, name, tree)[1]


def _settled(root: Path, name: str, tree: Tree) -> tuple[Checkout, Placed | None]:
    """The checkout, and the tree that is complete. Raises OperatorError for one in the way."""
    if tree.path is None or tree.commit is None:
        raise OperatorError("lock-pinned.no-commit", f"tree.{name}", name=name)
    target = root / tree.path
    before = inspect(target, tree.commit, tree.tree)
    if before.standing is Standing.OK and not _lacking(target, tree):
        return before, Placed(name, "already", target, tree.commit, before.tree)
    if before.standing not in (Standing.MISSING, Standing.SUPERSEDED, Standing.OK):
        raise _refusal(before, tree, name)
    return before, None


def place_tree(
    root: Path,
    name: str,
    tree: Tree,
    mirrors: Sequence[Mirror] = (),
    on_phase: OnPhase = lambda *_: None,
    bundle: Path | None = None,
) -> Placed:
    """Make `tree.path` below `root` hold exactly the locked commit.

    Nothing is done when it does already. A checkout that was clean at a commit locked earlier is
    moved aside and kept. Raises OperatorError for a checkout that is dirty, at another commit or
    not git's, a commit that no source has, a tree hash that differs, and a full disk.
    """
    if tree.path is None or tree.commit is None:
        raise OperatorError("lock-pinned.no-commit", f"tree.{name}", name=name)
    started = time.monotonic()
    target = root / tree.path
    work = target.parent / ".setup"
    work.mkdir(parents=True, exist_ok=True)
    with alone(work / f"{target.name}.lock", on_phase):
        on_phase("checking", None)
        before, complete = _settled(root, name, tree)
        if complete is not None:
            return complete
        placed = Placed(name, "already", target, tree.commit, before.tree)
        new = work / target.name
        try:
            _build(new, name, tree, mirrors, on_phase, bundle, placed)
            placed.state = _swap(new, target, before, placed)
        except OSError as error:
            raise system_error(error, new) from error
        finally:
            shutil.rmtree(new, ignore_errors=True)
    placed.seconds = time.monotonic() - started
    return placed


@contextlib.contextmanager
def alone(path: Path, on_phase: OnPhase) -> Iterator[None]:
    """Hold the lock file `path`; wait while another process of ours holds it."""
    with path.open("a", encoding="utf-8") as file:
        hold_lock(file.fileno(), lambda: on_phase("waiting for another setup", None))
        yield


def _lacking(target: Path, tree: Tree) -> list[str]:
    """The submodules to be fetched that `target` does not hold at their commits."""
    wanted = {path: sub for path, sub in tree.submodule.items() if sub.fetch}
    return [
        path
        for path, sub in wanted.items()
        if inspect(target / path, sub.commit, sub.tree).standing is not Standing.OK
    ]


def _build(
    new: Path,
    name: str,
    tree: Tree,
    mirrors: Sequence[Mirror],
    on_phase: OnPhase,
    bundle: Path | None,
    placed: Placed,
) -> None:
    """Fetch, verify and check out `tree` with its named submodules in the folder `new`."""
    assert tree.commit is not None
    shutil.rmtree(new, ignore_errors=True)
    urls = (str(bundle),) if bundle else urls_for(tree.url, mirrors, tree.mirrors)
    fetched = materialize(new, tree.url, tree.commit, tree.tree, urls, on_phase)
    placed.url, placed.notes = fetched.shown, fetched.notes
    recorded = gitlinks(new, tree.commit)
    for path, sub in tree.submodule.items():
        if recorded.get(path) != sub.commit:
            found = recorded.get(path, "no submodule")
            raise OperatorError(
                "submodule.commit",
                f"tree.{name}",
                path=path,
                expected=sub.commit,
                found=found,
                name=name,
            )
        if sub.fetch:
            _submodule(new / path, sub, mirrors, on_phase, bundle, placed)
    final = inspect(new, tree.commit, tree.tree)
    placed.tree = final.tree
    # Untracked is what the submodules' own folders look like to git before they are registered.
    if final.standing not in (Standing.OK, Standing.DIRTY) or final.changed:
        raise OperatorError("checkout.files", f"tree.{name}", standing=final.standing)


def _submodule(
    folder: Path,
    sub: Submodule,
    mirrors: Sequence[Mirror],
    on_phase: OnPhase,
    bundle: Path | None,
    placed: Placed,
) -> None:
    """Install one submodule; a bundle of the tree carries it under its own name."""
    packed = bundle.with_name(f"{bundle.stem}--{folder.name}.bundle") if bundle else None
    urls = (str(packed),) if packed else urls_for(sub.url, mirrors)
    fetched = materialize(folder, sub.url, sub.commit, sub.tree, urls, on_phase)
    placed.notes += fetched.notes


def _swap(new: Path, target: Path, before: Checkout, placed: Placed) -> str:
    """Put the finished tree in its place; an earlier locked checkout is moved aside and kept."""
    if before.standing is Standing.MISSING:
        new.rename(target)
        return "fetched"
    kept = target.parent / ".replaced" / f"{target.name}-{before.head[:12]}"
    kept.parent.mkdir(exist_ok=True)
    serial = 1
    while kept.exists():
        serial += 1
        kept = kept.with_name(f"{target.name}-{before.head[:12]}-{serial}")
    target.rename(kept)
    new.rename(target)
    placed.notes.append(f"the checkout of {before.head[:12]} was kept as {kept}")
    return "replaced"


def _refusal(found: Checkout, tree: Tree, name: str) -> OperatorError:
    """Why a checkout is not touched, and how to continue."""
    path = found.path
    where = str(path)
    match found.standing:
        case Standing.DIRTY:
            return OperatorError(
                "checkout-dirty.files",
                where,
                changed=len(found.changed),
                untracked=len(found.untracked),
                files=", ".join((found.changed + found.untracked)[:5]),
                path=path,
            )
        case Standing.MOVED:
            return OperatorError(
                "checkout-moved.commit",
                where,
                expected=tree.commit,
                found=found.head,
                path=path,
                name=name,
            )
        case Standing.WRONG_TREE:
            return OperatorError(
                "tree-hash.checkout",
                where,
                commit=tree.commit,
                found=found.tree,
                expected=tree.tree,
                name=name,
            )
        case Standing.UNKNOWN:
            return CannotTell("checkout.unreadable", where, problem=found.problem, path=path)
        case _:
            return OperatorError("checkout-foreign.folder", where, problem=found.problem, path=path)
