"""`reprise recipe list`, `show` and `check`; `plan` and `convert` are in plan.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reprise.cli.commands.recipe import new
from reprise.cli.commands.recipe.inputs import (
    ModelConfigOption,
    lines_of,
    load_recipe,
    script_report,
    set_lines,
    wide,
)
from reprise.cli.commands.recipe.plan import convert, plan_recipe
from reprise.cli.options import (
    AlgorithmOption,
    ModelArgument,
    OverridesArgument,
    OverridesFileOption,
    VerlOption,
)
from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.project import find_project

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(help="Show, check and plan recipes.", no_args_is_help=True)
    group.command("list")(list_recipes)
    group.command()(show)
    group.command()(check)
    group.command("plan")(plan_recipe)
    group.command()(convert)
    app.add_typer(group, name="recipe")
    app.add_typer(new.group, name="new")


@guard("recipe list")
def list_recipes(as_json: JsonFlag = False) -> None:
    """List the recipes with their machine, model and status."""
    from reprise.recipe.card import card_of
    from reprise.recipe.folders import recipe_folder, recipe_names

    project = find_project()
    report = Report("recipe list")
    report.data["recipes"] = []
    for name in recipe_names(project.recipes):
        card = card_of(project.recipes, name)
        report.data["recipes"].append(
            {
                "name": name,
                "title": card.title,
                "machine": card.machine.profile,
                "status": card.status,
                "folder": str(recipe_folder(project.recipes, name)),
            }
        )
    report.passed("recipe-cards")
    if not as_json:
        table = Table("recipe", "machine", "status", "what", box=None, pad_edge=False)
        for row in report.data["recipes"]:
            table.add_row(row["name"], row["machine"], row["status"], row["title"])
        wide().print(table, highlight=False)
    finish(report, as_json, quiet_ok=True)


@guard("recipe show")
def show(
    model: ModelArgument,
    overrides: OverridesArgument = None,
    algorithm: AlgorithmOption = "",
    full: Annotated[bool, typer.Option(help="Print the whole resolved config.")] = False,
    verl: VerlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the settings that differ from verl's defaults, their origin, and the exact command.

    Variables that the launcher sets are shown as /<NAME>.
    """
    from reprise.recipe.check import check_faults
    from reprise.recipe.config.origin import Origins
    from reprise.recipe.load import Inputs
    from reprise.recipe.show import command_line, differences, resolved_yaml, without_secrets

    lines = lines_of(overrides, algorithm)
    loaded, recipes = load_recipe(find_project(), model, lines, Inputs(verl=verl))
    report = Report("recipe show")
    check_faults(report, loaded.composition.faults)
    rows = differences(loaded, Origins(loaded.composition, recipes))
    report.data = {
        "verl": loaded.tree.label(),
        "card": loaded.card.model_dump(),
        "command": report.command,
        "job": command_line(model, loaded.composition.lines, loaded.outside),
        "differences": rows,
        "config": without_secrets(loaded.composition.values),
    }
    if not as_json:
        if full:
            sys.stdout.write(resolved_yaml(loaded))
        else:
            _print_differences(rows)
        for note in loaded.card.notes:
            Console(soft_wrap=True).print(f"note: {note}", highlight=False)
        sys.stdout.write(f"{loaded.tree.label()}\n{report.data['job']}\n")
    finish(report, as_json, quiet_ok=True)


def _print_differences(rows: list[dict[str, Any]]) -> None:
    table = Table("setting", "value", "verl's default", "from", box=None, pad_edge=False)
    for row in rows:
        where = row["where"].split(" (")[0]
        if where == "verl's default":
            where = "follows another setting"
        texts = (row["key"], str(row["value"]), str(row["default"]), where)
        table.add_row(*map(escape, texts))
    wide().print(table, highlight=False)


@guard("recipe check")
def check(
    model: Annotated[
        str, typer.Argument(help="Recipe; omit it with --script or --overrides.")
    ] = "",
    overrides: OverridesArgument = None,
    algorithm: AlgorithmOption = "",
    script: Annotated[
        Path | None, typer.Option(help="Bash launch script; it is parsed, not executed.")
    ] = None,
    overrides_file: OverridesFileOption = None,
    of_model: Annotated[
        str, typer.Option("--model", help="Recipe whose model and data the script trains.")
    ] = "",
    runtime_env: Annotated[Path | None, typer.Option(help="runtime_env.yaml of the job.")] = None,
    model_config: ModelConfigOption = None,
    shared: Annotated[
        list[str] | None, typer.Option(help="Folder that all nodes share (repeatable).")
    ] = None,
    verl: VerlOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="KEY=VALUE for what a script leaves unknown: a variable or a setting."
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option(help="Print every rule with its numbers and its source.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check a recipe, a launch script or a list of overrides before you reserve GPUs.

    All rules run in one pass, against the config files of the locked verl.
    """
    project = find_project()
    _one_thing(model, of_model, script, overrides_file)
    lines = lines_of(overrides, algorithm)
    folders = tuple(shared) if shared else None
    if script is not None:
        report = script_report(
            project, script, of_model or model, lines, settings or [], verl, model_config,
            runtime_env, folders,
        )  # fmt: skip
        label = report.data.pop("label")
    else:
        from reprise.flows.recipe import check_recipe

        loaded = _loaded(
            project, model, of_model, overrides_file, lines + set_lines(settings), verl,
            model_config, runtime_env, folders,
        )  # fmt: skip
        report, label = check_recipe(project, loaded), loaded.tree.label()
    if not as_json:
        sys.stdout.write(f"composed with {label}\n")
        if explain:
            _print_rules(report)
    finish(report, as_json)


def _loaded(
    project: Any,
    model: str,
    of_model: str,
    overrides_file: Path | None,
    lines: list[Any],
    verl: Path | None,
    model_config: Path | None,
    runtime_env: Path | None,
    shared: tuple[str, ...] | None,
) -> Any:
    """A recipe, or a file of overrides, composed."""
    from reprise.recipe.config.overrides import read_lines
    from reprise.recipe.load import Inputs

    if overrides_file is not None:
        lines = [*read_lines(overrides_file), *lines]
    elif not model:
        raise OperatorError("recipe-name.expected-recipe-script", "reprise recipe check")
    foreign = overrides_file is not None and not model
    inputs = Inputs(
        verl,
        model_config,
        runtime_env,
        "ppo_trainer" if foreign else None,
        {} if foreign else None,
        shared,
    )
    return load_recipe(project, of_model or model, lines, inputs)[0]


def _one_thing(model: str, of_model: str, script: Path | None, overrides_file: Path | None) -> None:
    """Refuse two scripts or two recipes: one of them would be ignored."""
    for first, second in ((script, overrides_file), (model, of_model)):
        if first and second and first != second:
            raise OperatorError("recipe-name.expected-one-thing", f"{first} and {second}")


def _print_rules(report: Report) -> None:
    table = Table("rule", "state", "numbers", "source", box=None, pad_edge=False)
    for row in report.data["rules"]:
        table.add_row(
            row["id"],
            row["state"],
            escape("\n".join([*row["formula"], row["reason"]]).strip()),
            row["source"],
        )
    wide().print(table, highlight=False)
