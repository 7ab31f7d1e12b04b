"""Rehearse the shape of a recipe: its algorithm, with the start model of its architecture."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from reprise.core.findings import Report, State
from reprise.core.project import Project
from reprise.curves.checks.soundness import complete, finite
from reprise.curves.reference import RewardSpec
from reprise.flows.preconditions import check_preconditions
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions
from reprise.flows.start_model import start_model
from reprise.metrics import read_run
from reprise.recipe.load import load
from reprise.rehearsal.model import ARCHITECTURES

__all__ = ["Shape", "check_shape", "rehearse_shape", "shape_of"]

COMMAND = "rehearsal run"
_VITAL = (RewardSpec().metric, "actor/grad_norm")


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a recipe is rehearsed: `arch` of the start model, and the algorithm's group.

    `wanted` is the recipe's model_type (None: not known), `found` that of the start model.
    """

    arch: str
    algo: str
    wanted: str | None
    found: str

    def options(self, steps: int) -> RehearsalOptions:
        """The rehearsal of this shape."""
        return RehearsalOptions(steps=steps, arch=self.arch, algo=self.algo, label="shape")


def shape_of(project: Project, name: str) -> Shape:
    """The shape of recipe `name`; the first start model where none has its model_type.

    Raises OperatorError for an unknown or damaged recipe.
    """
    loaded = load(project.root, name)
    wanted = loaded.model.config.get("model_type") if loaded.model is not None else None
    types = {arch: _model_type(project, arch) for arch in ARCHITECTURES}
    arch = next((arch for arch, kind in types.items() if kind == wanted), ARCHITECTURES[0])
    algo = loaded.composition.choices.get("algorithms", "")
    return Shape(arch, "" if algo == "None" else algo, wanted, types[arch])


def _model_type(project: Project, arch: str) -> str:
    config: dict[str, Any] = json.loads(
        (start_model(project, arch).path / "config.json").read_text(encoding="utf-8")
    )
    return str(config["model_type"])


def check_shape(project: Project, shape: Shape, steps: int) -> Report:
    """What would end the rehearsal, before it begins."""
    return check_preconditions(project, shape.options(steps), COMMAND, judged=False)


def rehearse_shape(project: Project, name: str, shape: Shape, steps: int) -> Report:
    """Train `steps` steps of the shape on this machine's CPU: all must be there, and finite.

    No curve is judged: a few steps show that the software runs, not that it learns. Raises
    OperatorError when the run cannot be started.
    """
    ended = Rehearsal(project, shape.options(steps)).run()
    if ended.report is not None:
        ended.report.command = COMMAND
        return ended.report
    report = Report(COMMAND, data={"run": str(ended.folder.path), "recipe": name})
    report.data |= {"arch": shape.arch, "algorithm": shape.algo, "steps": steps}
    table = read_run(ended.folder.path)
    for check in (complete(table, _VITAL[0], steps), finite(table, _VITAL)):
        if check.state is State.PASSED:
            report.passed(check.rule)
        elif check.state is State.FAILED:
            report.failed(check.rule, check.where, check.message, check.fix)
        else:
            report.unknown(check.rule, check.where, check.message, check.fix)
    if shape.wanted != shape.found:
        known = {"wanted": shape.wanted or "unknown", "found": shape.found}
        report.warn("rehearsal-shape.other", name, **known)
    report.note("rehearsal-shape.ran", name, steps=steps, found=shape.found, algo=shape.algo)
    return report
