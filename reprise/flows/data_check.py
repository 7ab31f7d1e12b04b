"""The check of data files with the numbers of the recipe and the router of verl."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.core.nested import flatten
from reprise.core.project import Project
from reprise.data.check.check import Checked, Inputs, Progress, check_files
from reprise.data.check.describe import describe
from reprise.data.check.router import Router, read_router
from reprise.data.check.settings import Settings, existing, read_overrides, refuse_misspelt
from reprise.data.check.tokens import ChatTokenizer, has_processor
from reprise.data.reward.judge import judge_reward
from reprise.data.reward.run import Scorer, probes, run_scorer
from reprise.data.reward.sandbox import with_sandbox
from reprise.recipe.card import Card, card_of
from reprise.recipe.load import load, verl_tree

__all__ = [
    "INSTEAD",
    "CheckRequest",
    "RewardRequest",
    "check_data",
    "data_dir",
    "describe_data",
    "own_files",
]

_ROUTER = "utils/reward_score/__init__.py"
_BARE = Card(title="data", status="not run")
INSTEAD = {"train": "TRAIN_FILES", "val": "VAL_FILES"}
"""The variables that name an operator's own files, by their role."""


def data_dir(project: Project) -> Path:
    """Where data files belong: DATA_DIR, else the project's root, as the recipes expect."""
    return Path(os.environ.get("DATA_DIR") or project.root).absolute()


@dataclass(frozen=True, slots=True)
class RewardRequest:
    """How to try the scorer: interpreter (default: the rehearsal's), rows, seconds of a step."""

    python: Path | None = None
    rows: int = 500
    step_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What to check: files (or those of the recipe), the recipe `model`, and what overrides it."""

    train: tuple[Path, ...] = ()
    val: tuple[Path, ...] = ()
    model: str | None = None
    overrides: tuple[str, ...] = ()
    tokenizer: Path | None = None
    verl: Path | None = None
    image_datasets: str | None = None
    reward: RewardRequest | None = None


def settings_of(
    project: Project, model: str | None, overrides: Sequence[str], say: Callable[[str], None]
) -> Settings:
    """The recipe's numbers, with the overrides on top. Raises OperatorError."""
    values: dict[str, Any] = {}
    if model is not None:
        values = flatten(load(project.root, model, say=say).composition.values)
    own = read_overrides(overrides)
    refuse_misspelt(own.keys() - values.keys())
    return Settings.from_values(values | own)


def router_of(
    project: Project, model: str | None, verl: Path | None, say: Callable[[str], None]
) -> Router | CannotTell:
    """The names that the recipe's verl can score; the reason when they cannot be read."""
    card = card_of(project.recipes, model) if model else _BARE
    try:
        return read_router(verl_tree(project.root, card, verl, say).package / _ROUTER)
    except CannotTell as error:
        return CannotTell("data-source", error.where, error.message, error.fix)


def check_data(
    project: Project,
    request: CheckRequest,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """`reprise data check`. Without files, those that the recipe or the overrides name."""
    report, items, settings = _checked(project, "data check", request, progress, say)
    if request.reward is not None and items:
        try:
            _try_reward(report, project, request, request.reward, items, settings, progress)
        except OperatorError as error:
            report.absorb(error.report("data check"))
    return report


def _try_reward(
    report: Report,
    project: Project,
    request: CheckRequest,
    how: RewardRequest,
    items: list[Checked],
    settings: Settings,
    progress: Progress | None,
) -> None:
    """Call the recipe's scorer on answers made from the rows, and judge what it says."""
    card = card_of(project.recipes, request.model) if request.model else None
    tree = verl_tree(project.root, card or _BARE, request.verl, lambda _: None)
    path = Path(settings.custom_reward) if settings.custom_reward else None
    wanted, arguments = with_sandbox(report, probes(items, settings, how.rows), settings)
    if not wanted:
        return
    scorer = Scorer(
        how.python or project.rehearsal_python,
        tree.package.parent,
        path if path is None or path.is_absolute() else project.root / path,
        settings.reward_name,
        arguments,
    )
    total = len(wanted)
    where, scored = run_scorer(
        scorer,
        wanted,
        None if progress is None else lambda count: progress("score answers", count, total),
    )
    judge_reward(report, scored, settings, how.step_seconds)
    report.data["scorer"] = where


def describe_data(
    project: Project,
    request: CheckRequest,
    samples: int,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """`reprise data describe`: the same pass, but facts instead of findings."""
    report, items, settings = _checked(project, "data describe", request, progress, say)
    result = Report("data describe")
    for finding in report.findings:
        if finding.rule == "data-file":
            result.failed(finding.rule, finding.where, finding.message, finding.fix)
    if items:
        result.passed("data-describe")
    result.data["files"] = [describe(item, settings, samples) for item in items]
    return result


def _checked(
    project: Project,
    command: str,
    request: CheckRequest,
    progress: Progress | None,
    say: Callable[[str], None],
) -> tuple[Report, list[Checked], Settings]:
    settings = settings_of(project, request.model, request.overrides, say)
    train, val = list(request.train), list(request.val)
    fetched: list[Path] = []
    if not train and not val:
        folder = _recipe_data(project, request.model)
        own = read_overrides(request.overrides)
        train, val = (
            _own(role) or existing(_filled(names, folder), folder, f"data.{role}_files" in own)
            for role, names in (("train", settings.train_files), ("val", settings.val_files))
        )
        fetched = [path for path in [*train, *val] if path.is_relative_to(folder)]
    if not train and not val:
        raise OperatorError("data-file.none-given", command, command=command)
    inputs = Inputs(
        router_of(project, request.model, request.verl, say),
        settings,
        ChatTokenizer(request.tokenizer) if request.tokenizer else None,
        request.image_datasets,
        progress,
        has_processor(request.tokenizer) if request.tokenizer else None,
    )
    report, first, second = check_files(command, train, val, inputs)
    if fetched:
        _fix_missing(report, project, request.model, {str(path) for path in fetched})
    if isinstance(inputs.router, Router):
        report.data["router"] = str(inputs.router.source)
    return report, first + second, settings


def _fix_missing(report: Report, project: Project, model: str | None, files: set[str]) -> None:
    """For a missing file of the recipe: the command that fetches it, and the folder."""
    folder = _recipe_data(project, model)
    made = model == "rehearsal"
    fix = (
        "make reproduce (creates it)"
        if made
        else f"make data (fetches it to DATA_DIR, now {folder})"
    )
    report.findings = [
        replace(item, fix=fix)
        if item.rule == "data-file" and item.where in files and not Path(item.where).exists()
        else item
        for item in report.findings
    ]


def _own(role: str) -> list[Path]:
    """The operator's files, from where the command was typed, as `data fetch` takes them."""
    return [Path(name) for name in own_files(role)]


def own_files(role: str) -> list[str]:
    """The operator's files for "train" or "val" (TRAIN_FILES, VAL_FILES: commas between them)."""
    return [part for part in os.environ.get(INSTEAD[role], "").split(",") if part]


def _recipe_data(project: Project, model: str | None) -> Path:
    """The folder of a recipe's data: generated for the rehearsal, else DATA_DIR."""
    return project.cache / "toy-data" if model == "rehearsal" else data_dir(project)


def _filled(files: Sequence[str], folder: Path) -> list[str]:
    """A composed recipe's files with the folder that a run gets as REPRISE_DATA_DIR.

    Raises OperatorError when a file depends on another variable that is not set.
    """
    found = [name.replace("/<REPRISE_DATA_DIR>", str(folder)) for name in files]
    for name in found:
        unset = re.search(r"/<([A-Za-z_][A-Za-z0-9_]*)>", name)
        if unset:
            raise OperatorError("data-file.variable-unset", name, variable=unset[1])
    return found
