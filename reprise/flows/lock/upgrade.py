"""`lock upgrade`: what another commit of a tree would change, in a copy; the lock moves last."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.core.files import write_text
from reprise.core.findings import Report, State
from reprise.core.project import Project
from reprise.flows.lock.compare_trees import compare_recipe
from reprise.flows.lock.rehearse import rehearse_trees
from reprise.flows.lock.update import update_entry
from reprise.flows.rehearsal import RehearsalOptions
from reprise.lock.check import check_lock
from reprise.lock.model import Tree
from reprise.lock.read import parse_lock, read_text, resolve_name
from reprise.recipe.card import card_of
from reprise.recipe.config.verltree import VerlTree, tree_at
from reprise.recipe.folders import recipe_names
from reprise.trees.setup import place_tree
from reprise.trees.sources import Mirror

__all__ = ["upgrade_tree"]

COMMAND = "lock upgrade"
_PLACED = "third_party"


def upgrade_tree(
    project: Project,
    name: str,
    to: str,
    mirrors: Sequence[Mirror] = (),
    apply: bool = False,
    say: Callable[[str], None] = lambda _: None,
    rehearsal: RehearsalOptions | None = None,
) -> Report:
    """Compare the tree `name` at `to` with the locked one, in a temporary copy of the lock.

    Contradictions of the lock; for a tree of verl also each recipe that uses it: keys that are
    gone, defaults that moved, new errors of the recipe check, judged metrics that are gone. If
    nothing is wrong, `rehearsal` is run with both trees. With `apply` the lock is then rewritten,
    unless anything is wrong or not known. `data`: `moved`, `recipes`, `applied`, `rehearsal`.
    Raises OperatorError for an entry that is no locked tree, CannotTell when no source answers.
    """
    text = read_text(project.lock)
    lock = parse_lock(text, project.lock.name)
    full = resolve_name(lock, name)
    entry = lock.entry(full)
    if not isinstance(entry, Tree) or entry.commit is None or entry.path is None:
        raise OperatorError("lock-upgrade.not-a-tree", full)
    report = Report(COMMAND, data={"entry": full, "moved": [], "recipes": [], "applied": False})
    with tempfile.TemporaryDirectory(prefix="reprise-upgrade-") as folder:
        copy = Path(folder) / project.lock.name
        shutil.copyfile(project.lock, copy)
        for path in project.root.iterdir():
            # What the entries of the lock name, but for what is placed anew.
            if path.name not in (copy.name, _PLACED) and not path.name.startswith("."):
                (copy.parent / path.name).symlink_to(path.absolute())
        say(f"resolving {to}")
        report.data["moved"] = update_entry(copy, full, to, mirrors).data["moved"]
        if not report.data["moved"]:
            report.passed("lock-upgrade")
            report.note("lock-upgrade.same", full, to=to)
            return report
        _contradictions(project.lock, copy, report)
        short = full.partition(".")[2]
        moved = parse_lock(read_text(copy), copy.name).tree[short]
        new = _placed(copy.parent / ".new", short, moved, mirrors, say)
        if new is not None:
            old = _locked(project, short, entry)
            if old is None:
                old = _placed(copy.parent / ".old", short, entry, mirrors, say)
            _recipes(project, short, old, new, report, say)
        else:
            old = None
            report.note("lock-upgrade.no-configs", full)
        report.settle("lock-upgrade")
        if rehearsal is not None:
            _rehearse(project, full, old, new, rehearsal, report, say)
        if apply and _sound(report):
            _apply(project.lock, text, copy)
            report.data["applied"] = True
        elif apply:
            report.failed("lock-upgrade.not-applied", full)
        elif _sound(report):
            left = rehearsal is None and new is not None
            end = "lock-upgrade.not-rehearsed" if left else "lock-upgrade.ready"
            report.note(end, full, name=short, to=to)
    return report


def _sound(report: Report) -> bool:
    return all(check.state is State.PASSED for check in report.checks)


def _rehearse(
    project: Project,
    name: str,
    old: VerlTree | None,
    new: VerlTree | None,
    options: RehearsalOptions,
    report: Report,
    say: Callable[[str], None],
) -> None:
    if old is None or new is None:
        report.unknown("lock-rehearsal.only-verl", name)
    elif not _sound(report):
        report.note("lock-rehearsal.not-begun", name)
    else:
        rehearse_trees(project, old, new, options, report, say)


def _placed(
    root: Path, name: str, tree: Tree, mirrors: Sequence[Mirror], say: Callable[[str], None]
) -> VerlTree | None:
    """The commit of `tree`, checked out below `root`; None when it has no configs of verl."""
    say(f"fetching {name} at {str(tree.commit)[:10]}")
    placed = place_tree(root, name, tree, mirrors)
    return tree_at(placed.path, f"{name} at {str(tree.commit)[:10]}")


def _locked(project: Project, name: str, tree: Tree) -> VerlTree | None:
    """The project's own checkout, if it is at the locked commit."""
    found = tree_at(project.root / str(tree.path), name)
    return found if found is not None and found.commit == tree.commit else None


def _contradictions(lock: Path, copy: Path, report: Report) -> None:
    """What the check of the lock finds in the copy and not in the lock."""
    before = {(item.rule, item.message) for item in check_lock(lock).findings}
    for item in check_lock(copy).errors():
        message = item.message.replace(str(copy.parent), str(lock.parent))
        if (item.rule, message) not in before:
            report.failed(item.rule, item.where, message, item.fix)


def _recipes(
    project: Project,
    name: str,
    old: VerlTree | None,
    new: VerlTree,
    report: Report,
    say: Callable[[str], None],
) -> None:
    users = [one for one in recipe_names(project.recipes) if _uses(project, one, name)]
    if old is None:
        report.unknown("lock-upgrade.no-old-configs", name)
        return
    for recipe in users:
        say(f"recipe {recipe}")
        compare_recipe(project, recipe, old, new, report)


def _uses(project: Project, recipe: str, tree: str) -> bool:
    return card_of(project.recipes, recipe).verl.lock == tree


def _apply(lock: Path, before: str, copy: Path) -> None:
    """Put the copy's text in the lock's place, unless the lock changed meanwhile."""
    if read_text(lock) != before:
        raise OperatorError("lock-upgrade.lock-changed", str(lock))
    write_text(lock, read_text(copy), lock.stat().st_mode & 0o777)
