"""`reprise curves show` and `reprise curves compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from reprise.cli.options import AcceptOption, AnyRunArgument, MarginOption, OutOption, SeriesOption
from reprise.cli.render import JsonFlag, finish, guard
from reprise.cli.tables import print_table
from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.nearby import did_you_mean, nearest_words

if TYPE_CHECKING:
    from reprise.metrics import MetricTable

__all__ = ["reference_or_run", "register"]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(help="Show a run's curves and judge them.", no_args_is_help=True)
    group.command()(show)
    group.command()(compare)
    app.add_typer(group, name="curves")


@guard("curves show")
def show(
    run: AnyRunArgument,
    metric: Annotated[
        list[str] | None, typer.Option(help="Print all values of this metric (repeatable).")
    ] = None,
    series: SeriesOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Summarise a run's metrics, attempts merged; with --metric, print their values."""
    from reprise.metrics import read_run

    run = _run(run)
    table = read_run(run, series)
    unknown = [name for name in metric or () if name not in table]
    if unknown:
        near = did_you_mean([word for name in unknown for word in nearest_words(name, table.names)])
        raise OperatorError(
            "metric.unknown",
            str(run),
            names=", ".join(unknown),
            count=len(table.names),
            near=near,
            run=run,
        )
    report = Report("curves show")
    report.findings.extend(table.findings)
    report.passed("metrics")
    report.data["metrics"] = {name: _summary(table, name) for name in metric or table.names}
    if metric:
        report.data["values"] = {name: _values(table, name) for name in metric}
    if not as_json:
        _print_table(report.data)
    finish(report, as_json)


def _summary(table: MetricTable, name: str) -> dict[str, Any]:
    series = table.series(name)
    finite = series.finite()
    if not len(finite):
        return {"points": len(series), "finite": 0}
    low, high = int(finite.values.argmin()), int(finite.values.argmax())
    tail = finite.values[-max(1, len(finite) // 10) :]
    return {
        "points": len(series),
        "finite": len(finite),
        "first": float(finite.values[0]),
        "last": float(finite.values[-1]),
        "minimum": float(finite.values[low]),
        "minimum_step": int(finite.steps[low]),
        "maximum": float(finite.values[high]),
        "maximum_step": int(finite.steps[high]),
        "mean_of_last_tenth": float(tail.mean()),
    }


def _values(table: MetricTable, name: str) -> list[list[float | int]]:
    series = table.series(name)
    return [[int(s), float(v)] for s, v in zip(series.steps, series.values, strict=True)]


def _print_table(data: dict[str, Any]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    for name, values in data.get("values", {}).items():
        for step, value in values:
            console.print(f"{name} {step} {value:.8g}", markup=False)
    if "values" in data:
        return
    columns = ("metric", "points", "first", "last", "minimum", "maximum")
    print_table(columns, [_row(*item) for item in sorted(data["metrics"].items())], columns[1:])


def _row(name: str, item: dict[str, Any]) -> tuple[str, ...]:
    if not item["finite"]:
        return name, str(item["points"]), *["no finite value"] * 4
    return (
        name,
        str(item["points"]),
        f"{item['first']:.4g}",
        f"{item['last']:.4g}",
        f"{item['minimum']:.4g} @{item['minimum_step']}",
        f"{item['maximum']:.4g} @{item['maximum_step']}",
    )


@guard("curves compare")
def compare(
    run: AnyRunArgument,
    reference: Annotated[
        list[Path],
        typer.Option(help="Reference folder, another run or its id, or a recipe (repeatable)."),
    ],
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Steps the run was to train; default: run.json, then reference."),
    ] = None,
    margin: MarginOption = None,
    accept: AcceptOption = None,
    series: SeriesOption = None,
    out: OutOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Judge a run against reference runs. Exit code 0: PASS; 1: FAIL; 2: INCONCLUSIVE.

    With several references, each gives a verdict of its own: 1 if any is FAIL, 2 if none is and
    any is INCONCLUSIVE.
    """
    from reprise.curves import load_reference
    from reprise.flows.judge.judging import judge_any, open_run, write_any

    read = open_run(_run(run), series)
    judged = []
    for named in reference:
        known = load_reference(reference_or_run(named))
        judgement = judge_any(read, known, steps, margin, tuple(accept or ()))
        judged.append(judgement)
        if out is not None:
            folder = out if len(reference) == 1 else out / known.name
            write_any(folder, read, judgement, known)
        if not as_json:
            typer.echo(judgement.text())
            if out is not None:
                typer.echo(f"  report: {folder / 'report.html'}")
    if as_json:
        report = judged[0].report("curves compare")
        for other in judged[1:]:
            report.absorb(other.report("curves compare"))
        if len(judged) > 1:
            report.data["judgements"] = [item.to_json() for item in judged]
        finish(report, as_json=True)
    codes = {item.exit_code for item in judged}
    raise typer.Exit(1 if 1 in codes else max(codes))


def _run(named: Path) -> Path:
    """A path as it stands, else the run with that id. Raises OperatorError when there is none."""
    if named.exists() or len(named.parts) != 1:
        return named
    from reprise.core.project import find_project
    from reprise.flows.judge.judging import named_run

    return named_run(find_project(), named)


def reference_or_run(named: Path) -> Path:
    """A path as it stands, else the reference of the recipe with that name, else a run."""
    if named.exists() or len(named.parts) != 1:
        return named
    from reprise.core.project import find_project
    from reprise.recipe.folders import recipe_folder, recipe_names

    project = find_project()
    folder = recipe_folder(project.recipes, named.name) / "reference"
    if folder.is_dir():
        return folder
    try:
        return _run(named)
    except OperatorError as error:
        recorded = [
            name
            for name in recipe_names(project.recipes)
            if (recipe_folder(project.recipes, name) / "reference").is_dir()
        ]
        raise OperatorError(
            "reference.unknown",
            str(named),
            recipes=", ".join(recorded),
            reason=error.message,
        ) from None
