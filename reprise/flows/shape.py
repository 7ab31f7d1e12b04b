"""The shape of a recipe in the rehearsal: a few steps of a tiny model of its class."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path

from reprise.core.errors import CannotTell
from reprise.core.findings import Report
from reprise.core.nested import flatten
from reprise.core.project import Project
from reprise.flows.preconditions import check_preconditions
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions
from reprise.metrics import read_run
from reprise.recipe.load import Loaded, load
from reprise.rehearsal.shapes import ARCHITECTURES, arch_of
from reprise.runs.state.folder import APART, RunFolder

__all__ = ["COMMAND", "check_shape", "rehearse_shape", "shape_options"]

COMMAND = "rehearsal shape"
# What a run of two steps shows: answers are scored, and rollout and trainer have the same weights.
_SHOWN = ("critic/rewards/mean", "training/rollout_probs_diff_mean")
# Settings that say how a recipe samples; sizes, lengths and layout are the rehearsal's.
_ROLLOUT = "actor_rollout_ref.rollout"
_SAMPLING = tuple(
    f"{_ROLLOUT}.{part}{name}"
    for part in ("", "val_kwargs.")
    for name in ("temperature", "top_p", "top_k")
)


def shape_options(project: Project, recipe: str, options: RehearsalOptions) -> RehearsalOptions:
    """`options` with the tiny model, the algorithm and the sampling of `recipe`.

    Raises CannotTell when the family of its model is unknown or has no tiny model.
    """
    loaded = load(project.root, recipe)
    family = loaded.model.family if loaded.model is not None else ""
    arch = arch_of(family)
    if arch is None:
        known = ", ".join(sorted({shape.model_type for shape in ARCHITECTURES.values()}))
        raise CannotTell(
            "rehearsal-shape.no-model", recipe, family=family or "not stated", known=known
        )
    return RehearsalOptions(
        seed=options.seed,
        steps=options.steps,
        arch=arch,
        algo=loaded.known.algorithm,
        overrides=(*_settings(loaded), *options.overrides),
        label=APART[1],
        quiet=options.quiet,
        wait=options.wait,
    )


def _settings(loaded: Loaded) -> list[str]:
    """The recipe's sampling, and its overlong penalty in the rehearsal's lengths."""
    values = flatten(loaded.composition.values)
    found = [f"{key}={value}" for key in _SAMPLING if (value := values.get(key)) is not None]
    penalty = values.get("reward.reward_kwargs.overlong_buffer_cfg.enable")
    return [*found, "rehearsal/overlong=read"] if penalty is True else found


def check_shape(project: Project, options: RehearsalOptions) -> Report:
    """What would end the run, before it begins."""
    return check_preconditions(project, options, COMMAND, judged=False)


def rehearse_shape(project: Project, recipe: str, options: RehearsalOptions) -> Report:
    """Run the shape, with what `shape_options` gives; a job that fails is a report with its cause.

    `data`: `recipe`, `run`, `arch`, `model` (the class), `algorithm`, `steps`, and `metrics`, the
    values of the steps that have one.
    """
    ended = Rehearsal(project, options).run()
    if ended.report is not None:
        ended.report.command = COMMAND
        return ended.report
    shape = ARCHITECTURES[options.arch]
    values = _values(ended.folder)
    report = Report(COMMAND, data={
        "recipe": recipe, "run": str(ended.folder.path), "arch": options.arch,
        "model": shape.model, "algorithm": options.algo, "steps": ended.folder.read().steps,
        "metrics": values,
    })  # fmt: skip
    _judge(report, ended.folder.path, values)
    return report


def _values(folder: RunFolder) -> dict[str, list[float]]:
    table = read_run(folder.path)
    return {name: [float(value) for value in table.series(name).values] for name in _SHOWN}


def _judge(report: Report, run: Path, values: Mapping[str, list[float]]) -> None:
    """Each step must have a finite number; how good it is says nothing after two steps."""
    for name, found in values.items():
        if len(found) != report.data["steps"] or not all(map(math.isfinite, found)):
            shown = ", ".join(map(str, found)) or "none"
            report.failed("rehearsal-shape.no-number", str(run), metric=name, found=shown,
                          steps=report.data["steps"], run=shlex.quote(str(run)))  # fmt: skip
    report.settle("rehearsal-shape")
    if not any(report.errors()):
        shown = "; ".join(
            f"{name} {', '.join(f'{value:.4f}' for value in found)}"
            for name, found in values.items()
        )
        data = report.data
        report.note(
            "rehearsal-shape.ran",
            str(run),
            model=data["model"],
            algorithm=data["algorithm"] or "the rehearsal's algorithm",
            steps=data["steps"],
            numbers=shown,
        )
