"""Two trees of verl under one recipe: keys that are gone, defaults that moved, metrics renamed."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.core.findings import Report, Severity, State
from reprise.core.nested import flatten
from reprise.core.project import Project
from reprise.curves.reference import JUDGE, MANIFEST, Metrics, load_reference, read_judge
from reprise.flows.recipe import check_recipe
from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.folders import recipe_folder
from reprise.recipe.load import Inputs, Loaded, load

__all__ = ["compare_recipe", "literals"]

_LITERAL = re.compile(r"""["']((?:[a-z_]+/)+[A-Za-z_@\d/]+)["']""")
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class _Keys:
    """Keys with their values before and after; `gone` are set by the recipe and read by nobody."""

    gone: list[tuple[str, object]]
    moved: list[tuple[str, object, object]]
    added: int


def compare_recipe(
    project: Project, name: str, old: VerlTree, new: VerlTree, report: Report
) -> None:
    """Report what the tree `new` changes for recipe `name`, and keep the counts in the data."""
    before = load(project.root, name, inputs=Inputs(verl=old.package))
    try:
        after = load(project.root, name, inputs=Inputs(verl=new.package))
    except OperatorError as error:
        report.failed("lock-upgrade.not-composed", name, reason=error.message)
        return
    keys = _keys(before, after)
    for key, value in keys.gone:
        report.failed("lock-upgrade.key-gone", name, key=key, value=value)
    for key, then, now in keys.moved[:_SHOWN]:
        report.warn("lock-upgrade.default", name, key=key, then=then, now=now)
    if len(keys.moved) > _SHOWN:
        report.warn("lock-upgrade.more", name, count=len(keys.moved) - _SHOWN)
    _rules(project, before, after, report)
    renamed = _metrics(project, name, old, new, report)
    report.data["recipes"].append(
        {
            "recipe": name,
            "keys_gone": [key for key, _ in keys.gone],
            "defaults": [
                {"key": key, "old": str(then), "new": str(now)} for key, then, now in keys.moved
            ],
            "keys_added": keys.added,
            "metrics_gone": renamed,
        }
    )


def _keys(before: Loaded, after: Loaded) -> _Keys:
    """What the recipe resolves to with each tree, and what verl itself has."""
    ours, theirs = flatten(before.composition.values), flatten(after.composition.values)
    old, new = flatten(before.composition.base), flatten(after.composition.base)
    gone = [
        (key, value)
        for key, value in sorted(ours.items())
        if key in old and key not in new and value != old[key]
    ]
    moved = [
        (key, ours[key], theirs[key])
        for key in sorted(ours.keys() & theirs.keys())
        if ours[key] != theirs[key]
    ]
    return _Keys(gone, moved, len(new.keys() - old.keys()))


def _rules(project: Project, before: Loaded, after: Loaded, report: Report) -> None:
    """What `recipe check` finds wrong, or cannot evaluate, with the new tree alone."""
    then, now = check_recipe(project, before), check_recipe(project, after)
    known = {(item.rule, item.message) for item in then.findings}
    unknown = {check.rule for check in now.checks if check.state is State.UNKNOWN}
    for item in now.findings:
        if (item.rule, item.message) in known:
            continue
        where = f"{after.name}: {item.where}"
        if item.severity is Severity.ERROR:
            report.failed(item.rule, where, item.message, item.fix)
        elif item.rule in unknown:
            report.unknown(item.rule, where, item.message, item.fix)


def _metrics(
    project: Project, name: str, old: VerlTree, new: VerlTree, report: Report
) -> list[str]:
    """Judged metrics that the old tree's sources spell out and the new one's do not."""
    then, now = literals(old.package), literals(new.package)
    gone = []
    for metric in _judged(project, name):
        if metric in then and metric not in now:
            near = difflib.get_close_matches(metric, sorted(now - then) or sorted(now), n=2)
            shown = f"; new ones that resemble it: {', '.join(near)}" if near else ""
            report.failed("lock-upgrade.metric-gone", name, metric=metric, near=shown)
            gone.append(metric)
        elif metric not in then:
            report.note("lock-upgrade.metric-built", name, metric=metric)
    return gone


def literals(package: Path) -> set[str]:
    """Strings in the sources of `package` that look like the name of a metric (`a/b/c`)."""
    found: set[str] = set()
    for path in sorted(package.rglob("*.py")):
        found |= set(_LITERAL.findall(path.read_text(encoding="utf-8", errors="replace")))
    return found


def _judged(project: Project, name: str) -> tuple[str, ...]:
    """The metrics by which the recipe's runs are judged."""
    folder = recipe_folder(project.recipes, name)
    metrics: Metrics | None = None
    if (folder / JUDGE).is_file():
        metrics = read_judge(folder / JUDGE, Report("lock upgrade"))
    elif (folder / "reference" / MANIFEST).is_file():
        metrics = load_reference(folder / "reference").metrics
    return metrics.judged if metrics is not None else ()
