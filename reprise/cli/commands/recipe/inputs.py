"""Shared by the commands about recipes: their arguments, and how a recipe is loaded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from reprise.core.findings import Report
from reprise.core.project import Project

if TYPE_CHECKING:
    from reprise.recipe.load import Inputs, Loaded

__all__ = [
    "ModelConfigOption",
    "lines_of",
    "load_recipe",
    "script_report",
    "set_lines",
    "wide",
]

ModelConfigOption = Annotated[
    Path | None, typer.Option(help="config.json of the model, instead of the recipe card's.")
]


def wide() -> Console:
    """The terminal, or lines of 220 columns without a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=220)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def lines_of(overrides: list[str] | None, algorithm: str) -> list[Any]:
    """The command line's overrides, that of the algorithm's group first."""
    from reprise.recipe.config.overrides import Line

    first = [f"algorithms={algorithm}"] if algorithm else []
    return [Line(text) for text in [*first, *(overrides or [])]]


def load_recipe(
    project: Project, model: str, lines: list[Any], inputs: Inputs
) -> tuple[Loaded, Path]:
    """The composed recipe and the folder of recipes. Raises OperatorError."""
    from reprise.recipe.load import load

    return load(project.root, model, lines, inputs, _say), project.recipes


def set_lines(settings: list[str] | None) -> list[Any]:
    """`--set KEY=VALUE` as overrides. Raises OperatorError for another form."""
    from reprise.flows.script import split_set
    from reprise.recipe.config.overrides import Line

    _, keys = split_set(settings or [], "")
    return [Line(f"{key}={value}", "--set") for key, value in keys.items()]


def script_report(
    project: Project,
    path: Path,
    model: str,
    lines: list[Any],
    settings: list[str],
    verl: Path | None,
    model_config: Path | None,
    runtime_env: Path | None,
    shared: tuple[str, ...] | None,
) -> Report:
    """The report of a launch script. Raises OperatorError, CannotTell."""
    from reprise.flows.script import ScriptInputs, check_script, split_set
    from reprise.recipe.script import read_script

    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    variables, values = split_set(settings, text)
    script = read_script(path, variables)
    inputs = ScriptInputs(model, verl, model_config, runtime_env, shared, tuple(lines), values)
    return check_script(project, script, inputs, _say)
