"""Check a recipe: all rules, and the known contradictions of the lock that apply to it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.machines.registry import machine_named
from reprise.recipe.check import check
from reprise.recipe.facts import facts_of, lacking
from reprise.recipe.load import Loaded
from reprise.recipe.ruleset import rules_for
from reprise.recipe.setup import Setup
from reprise.recipe.unknowns import Undecided

if TYPE_CHECKING:
    from reprise.lock.model import Lock, Machine

__all__ = ["check_recipe"]


def check_recipe(project: Project, loaded: Loaded) -> Report:
    """Every rule on a composed recipe, then the lock's known contradictions that it trips.

    `data["facts"]` gives what holds of the recipe and by which settings, `data["machine"]` the
    machine of the lock that it is judged for (None without a recipe). Raises OperatorError when
    the lock cannot be read.
    """
    rules = rules_for(loaded.known.entry, loaded.composition.values)
    report = check(loaded.composition, loaded.known, loaded.model, project.recipes, rules)
    setup = Setup(loaded.composition.values, loaded.tree, loaded.model, loaded.known)
    facts: dict[str, str] | None = None
    with contextlib.suppress(Undecided):  # what decides it is reported by the rules that need it
        facts = facts_of(setup)
    machine = _machine(loaded)
    if machine is not None:
        # Imported here: a script without a recipe needs no lock, and the schema takes 0.1 s.
        from reprise.lock.contradict import judge_recipe
        from reprise.lock.read import read_lock

        lock = read_lock(project.lock)
        report.absorb(judge_recipe(lock, machine, facts, lambda fact: lacking(setup, fact)))
        _named(report, loaded, lock, machine)
    report.data |= {"facts": facts or {}, "machine": machine}
    return report


def _named(report: Report, loaded: Loaded, lock: Lock, machine: Machine) -> None:
    """What the recipe card names must be in the lock, for the recipe's machine."""
    rule, card = "recipe-card-lock", loaded.card
    names = {"tree": card.verl.lock, "model": card.model.lock, "image": card.machine.image}
    wanted = list(names.items())
    wanted += [
        ("data", name)
        for role, name in (("train", card.train), ("validation", card.validation))
        if role not in card.made
    ]
    for kind, name in wanted:
        full = f"{kind}.{name}"
        where = f"{loaded.name}/card.toml"
        entry = lock.entry(full)
        if not name:
            continue
        if entry is None:
            known = ", ".join(getattr(lock, kind)) or "none"
            report.failed(
                "recipe-card-lock.missing", where, entry=full, kind=kind, name=name,
                machine=machine, known=known,
            )  # fmt: skip
        elif machine not in entry.machines:
            report.failed("recipe-card-lock.other-machine", where, entry=full, machine=machine)
    report.settle(rule)


def _machine(loaded: Loaded) -> Machine | None:
    """The lock's machine of the recipe card.

    A script without a recipe runs on a machine, and with images and packages, that are unknown
    here: the lock does not apply to them.
    """
    return machine_named(loaded.card.machine.profile).lock if loaded.name else None
