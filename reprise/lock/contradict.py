"""Contradictions between what locked things declare and what is locked: found, then compared
with those that the lock records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from reprise.core.findings import Report
from reprise.lock.declared import declarations, normal
from reprise.lock.installed import Installed
from reprise.lock.model import Contradiction, Lock, Machine

__all__ = ["Conflict", "compare", "in_installed", "in_tree", "judge_recipe", "locked_versions"]

RULE = "contradiction"


@dataclass(frozen=True, slots=True)
class Conflict:
    """`declarer` requires `requirement` at `where`; `locked` has another `version`."""

    declarer: str
    where: str
    requirement: str
    locked: str
    version: str


def locked_versions(lock: Lock, machine: Machine) -> dict[str, tuple[str, str]]:
    """The packages of a machine, as {canonical name: (entry, version)}.

    A package overrides the image's own, a checkout overrides both: it is first on the path.
    """
    found: dict[str, tuple[str, str]] = {}
    for name, image in lock.image.items():
        if machine in image.machines:
            for package, version in image.contents.items():
                found[canonicalize_name(package)] = (f"image.{name}", version)
    for name, package_entry in lock.package.items():
        if machine in package_entry.machines:
            key = canonicalize_name(package_entry.name)
            found[key] = (f"package.{name}", package_entry.version)
    for name, tree in lock.tree.items():
        if machine in tree.machines and tree.distribution and tree.version and tree.path:
            found[canonicalize_name(tree.distribution)] = (f"tree.{name}", tree.version)
    return found


def _allows(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True


def in_tree(lock: Lock, machine: Machine, name: str, folder: Path) -> list[Conflict]:
    """What the checkout `folder` of tree `name` declares against the lock, for one machine.

    Declarations of things that the lock does not name cannot contradict it. Raises OSError or
    ValueError when the tree's files cannot be read.
    """
    versions = locked_versions(lock, machine)
    own = canonicalize_name(lock.tree[name].distribution)
    conflicts: list[Conflict] = []
    for item in declarations(folder):
        key = canonicalize_name(item.requirement.name)
        entry, version = versions.get(key, ("", ""))
        if entry and key != own and not _allows(item.requirement, version):
            where = f"{lock.tree[name].path}/{item.file}:{item.line}"
            locked = "python" if key == "python" else entry
            wanted = normal(item.requirement)
            conflicts.append(Conflict(f"tree.{name}", where, wanted, locked, version))
    return conflicts


def in_installed(name: str, installed: Installed) -> list[Conflict]:
    """What the distributions of an environment declare and the environment does not meet."""
    conflicts: list[Conflict] = []
    for distribution, requirement in installed.requirements():
        found = installed.distributions.get(canonicalize_name(requirement.name))
        if found is not None and _allows(requirement, found.version):
            continue
        conflicts.append(
            Conflict(
                f"environment.{name}",
                distribution.name,
                normal(requirement),
                "absent" if found is None else f"environment.{name}",
                "absent" if found is None else found.version,
            )
        )
    return conflicts


def compare(
    report: Report, lock: Lock, machine: Machine, found: Iterable[Conflict], read: Collection[str]
) -> None:
    """Compare the conflicts found with those recorded for `machine`.

    `read` holds the entries whose declarations were read. A conflict that is not recorded is an
    error, so is a record of a conflict that no longer exists; one whose declarer was not read
    is unknown. A recorded one is a warning that states when it matters.
    """
    records = {
        (item.declared_by, normal(Requirement(item.declares))): (name, item)
        for name, item in lock.contradiction.items()
        if machine in item.machines and item.kind == "declared"
    }
    seen: set[tuple[str, str]] = set()
    for conflict in found:
        key = (conflict.declarer, conflict.requirement)
        if key in records and key not in seen:
            _recorded(report, *records[key], conflict)
        elif key not in records:
            report.failed(
                "contradiction.unrecorded",
                conflict.where,
                requirement=conflict.requirement,
                machine=machine,
                version=conflict.version,
                locked=conflict.locked,
            )
        seen.add(key)
    for key, (name, item) in records.items():
        if key in seen:
            continue
        where = f"contradiction.{name}"
        if item.declared_by in read:
            report.failed(
                "contradiction.gone",
                where,
                declarer=item.declared_by,
                requirement=item.declares,
                machine=machine,
            )
        else:
            report.unknown(
                "contradiction.unread",
                where,
                declarer=item.declared_by,
                requirement=item.declares,
            )
    report.settle(RULE)


def _recorded(report: Report, name: str, item: Contradiction, conflict: Conflict) -> None:
    report.warn(
        "contradiction.recorded",
        f"contradiction.{name}",
        place=conflict.where,
        requirement=conflict.requirement,
        version=conflict.version,
        reason=item.why_right,
        condition=item.not_when,
    )


def judge_recipe(
    lock: Lock,
    machine: Machine,
    facts: Mapping[str, str] | None,
    lacks: Callable[[str], str] = lambda _: "",
) -> Report:
    """Which known contradictions affect a recipe with these `facts`: {name: the reason}.

    None: they are not known. `lacks` gives the settings by which a fact does not hold.

    A name is, for example, "transformers-flash-attention" (the recipe trains through that path on
    a model without attention sinks). A contradiction tripped by a fact is an error; one that could
    be tripped and is not is a note that says why. All others are for `lock verify` alone.
    """
    report = Report("recipe check")
    rule = "recipe-contradiction"
    for name, item in lock.contradiction.items():
        if machine not in item.machines or not item.tripped_by:
            continue
        where = f"contradiction.{name}"
        if facts is None:
            report.unknown(
                "recipe-contradiction.undecided",
                where,
                requirement=item.declares,
                condition=item.not_when,
            )
        elif item.tripped_by in facts:
            report.failed(
                "recipe-contradiction.affected",
                where,
                declarer=item.declared_by,
                requirement=item.declares,
                locked=item.locked,
                version=item.verified_with,
                fact=facts[item.tripped_by],
                fix=item.not_when,
            )
        else:
            report.note(
                "recipe-contradiction.not-affected",
                where,
                requirement=item.declares,
                fact=item.tripped_by,
                reason=lacks(item.tripped_by) or "none of its settings does",
            )
    report.settle(rule)
    return report
