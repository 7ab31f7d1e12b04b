"""`reprise recipe plan` and `convert`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reprise.cli.commands.recipe.inputs import (
    ModelConfigOption,
    lines_of,
    load_recipe,
    wide,
)
from reprise.cli.options import AlgorithmOption, ModelArgument, OverridesArgument, VerlOption
from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.project import find_project

__all__ = ["convert", "plan_recipe"]


@guard("recipe plan")
def plan_recipe(
    model: ModelArgument,
    overrides: OverridesArgument = None,
    algorithm: AlgorithmOption = "",
    gpu_memory: Annotated[
        float | None,
        typer.Option(min=1, max=1e6, help="GPU memory in GiB, instead of the recipe card's."),
    ] = None,
    throughput: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=1e9, help="Tokens per second and GPU (verl's perf/throughput)."
        ),
    ] = None,
    model_config: ModelConfigOption = None,
    verl: VerlOption = None,
    search: Annotated[
        bool, typer.Option("--search", help="List layouts that are legal and fit, fastest first.")
    ] = False,
    nodes: Annotated[
        list[int] | None,
        typer.Option(min=1, max=4096, help="With --search: number of nodes to try (repeatable)."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, max=20, help="With --search: layouts to list.")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Print what a recipe needs: memory of a GPU and a node, disk for checkpoints, time.

    Memory is estimated by formulas; docs/recipes.md states what was measured. With --search, list
    parallel sizes, rollout TP, offload and recomputation that fit, by the estimated time.
    """
    from reprise.recipe.check import check_faults
    from reprise.recipe.load import Inputs
    from reprise.recipe.plan.plan import plan

    lines = lines_of(overrides, algorithm)
    inputs = Inputs(verl=verl, model_config=model_config)
    project = find_project()
    loaded, _ = load_recipe(project, model, lines, inputs)
    if search:
        from reprise.recipe.plan.proposals import propose

        report = propose(loaded, gpu_memory, tuple(nodes or ()), top)
        check_faults(report, loaded.composition.faults)
        if not as_json:
            _print_layouts(report.data)
        finish(report, as_json)
    if nodes:
        raise OperatorError("recipe-plan-arguments.nodes-without-search", "--nodes", recipe=model)
    report = plan(loaded, gpu_memory, throughput, recipes=project.recipes)
    check_faults(report, loaded.composition.faults)
    if not as_json:
        _print_plan(report.data)
    finish(report, as_json)


_PARTS = {
    "parameters": "parameters",
    "training": "training, GiB of {place} at the worst stage",
    "rollout": "rollout, GiB of a GPU",
    "rollout_cache": "rollout cache",
    "host": "host memory, GiB of a node",
    "checkpoint": "one checkpoint, TB",
    "disk": "disk",
    "time": "a step",
}


def _print_plan(data: dict[str, Any]) -> None:
    console = Console(soft_wrap=True)
    place = "a process" if "host_memory" in data else "a GPU"
    for part, title in _PARTS.items():
        rows = data.get(part)
        if not rows:
            continue
        table = Table(title.format(place=place), "", box=None, pad_edge=False)
        for name, value in rows.items():
            shown = f"{value:,}" if isinstance(value, int) else str(value)
            table.add_row(f"  {escape(str(name))}", escape(shown))
        console.print(table, highlight=False)


_SIZES = ("nodes", "tp", "pp", "cp", "ep", "etp", "rollout_tp", "offload", "recompute")


def _print_layouts(data: dict[str, Any]) -> None:
    rows = data.get("layouts")
    if not rows:
        return
    memory = ("training_gib", "rollout_gib", "host_gib")
    heads = [*(name.replace("_", " ") for name in _SIZES), "s a step", "train", "rollout", "host"]
    table = Table(*heads, "GB sent", box=None, pad_edge=False)
    for row in rows:
        sizes = [_word(row[name]) for name in _SIZES]
        cells = [f"{row['seconds']:,.0f}", *(f"{row[name]:,.1f}" for name in memory)]
        table.add_row(*sizes, *cells, f"{row['sent_gb']:,.0f}")
    wide().print(table, highlight=False)
    sys.stdout.write(
        f"{data['fit']} of {data['tried']} layouts are legal and fit\n"
        "train, rollout: GiB of a GPU; host: GiB of a node; GB sent: by one GPU in a step\n"
        f"time: {data['time_is']}\n"
        f"the first as overrides: {' '.join(rows[0]['overrides'])}\n"
    )


def _word(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


@guard("recipe convert")
def convert(
    model: Annotated[str, typer.Argument(help="Recipe whose model is converted.")] = "",
    source: Annotated[Path | None, typer.Option(help="Folder of the Hugging Face weights.")] = None,
    target: Annotated[Path | None, typer.Option(help="Folder to write; must not exist.")] = None,
    pp: Annotated[int, typer.Option(min=1, help="Pipeline ranks of the conversion.")] = 1,
    ep: Annotated[int, typer.Option(min=1, help="Expert ranks of the conversion.")] = 1,
    verify: Annotated[Path | None, typer.Option(help="Check a converted folder instead.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check an offline conversion to MCore and print its command, or verify its result.

    Optional: verl loads Hugging Face weights online.
    """
    from reprise.recipe.card import card_of
    from reprise.recipe.convert import Conversion, check_conversion, check_mcore

    report = Report("recipe convert")
    if verify is not None and (model or source or target):
        raise OperatorError(
            "recipe-convert-arguments.converted-folder-verified", "--verify", verify=verify
        )
    if verify is not None:
        check_mcore(report, verify)
        finish(report, as_json)
    shape = card_of(find_project().recipes, model).model_shape() if model else None
    if shape is None or source is None or target is None:
        raise OperatorError(
            "recipe-convert-arguments.expected-recipe-model", "reprise recipe convert"
        )
    check_conversion(report, Conversion(source, target, pp, ep), shape)
    if not as_json and report.exit_code == 0:
        sys.stdout.write(f"{report.data['job']}\n{report.data['then']}\n")
    finish(report, as_json)
