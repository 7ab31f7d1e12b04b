"""Check a recipe: all rules, and the known contradictions of the lock that apply to it."""

from __future__ import annotations

from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.lock.contradict import judge_recipe
from reprise.lock.model import Machine
from reprise.lock.read import read_lock
from reprise.machines.registry import machine_named
from reprise.recipe.check import check
from reprise.recipe.facts import facts_of
from reprise.recipe.load import Loaded
from reprise.recipe.setup import Setup

__all__ = ["check_recipe"]


def check_recipe(project: Project, loaded: Loaded) -> Report:
    """Every rule on a composed recipe, then the lock's known contradictions that it trips.

    `data["facts"]` gives what holds of the recipe and by which settings, `data["machine"]` the
    machine of the lock that it is judged for. Raises OperatorError when the lock cannot be read.
    """
    report = check(loaded.composition, loaded.known, loaded.model, project.recipes)
    setup = Setup(loaded.composition.values, loaded.tree, loaded.model, loaded.known)
    facts = facts_of(setup)
    machine = _machine(loaded)
    report.absorb(judge_recipe(read_lock(project.lock), machine, facts))
    report.data |= {"facts": facts, "machine": machine}
    return report


def _machine(loaded: Loaded) -> Machine:
    """The machine of the recipe card; a script without a recipe is judged for h20, whose verl it is
    composed with.
    """
    return machine_named(loaded.card.machine.profile).lock if loaded.name else "h20"
