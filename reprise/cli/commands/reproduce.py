"""`reprise reproduce` and `reprise baseline`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reprise.cli.options import (
    AcceptOption,
    AlgorithmOption,
    ArchOption,
    EngineOption,
    LayoutOption,
    MarginOption,
    NoWaitOption,
    OutOption,
    OverridesArgument,
    PlatformOption,
    RolloutOption,
    SeriesOption,
)
from reprise.cli.render import JsonFlag, finish, guard, proceed
from reprise.core.errors import OperatorError
from reprise.core.project import find_project
from reprise.flows.target import DEFAULT, Target
from reprise.rehearsal.shapes import DEFAULT_ARCH

if TYPE_CHECKING:
    from reprise.flows.reproduce import Judged

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(reproduce)
    app.command()(baseline)


@guard("reproduce")
def reproduce(
    model: Annotated[str, typer.Argument(help="Recipe to reproduce.")] = "rehearsal",
    overrides: OverridesArgument = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of data order and sampling; default: 1.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps to run; default: the recipe's.")
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(min=1, max=2, help="FSDP ranks, and vLLM's tensor parallel size; default: 1."),
    ] = None,
    arch: ArchOption = "",
    algo: AlgorithmOption = "",
    platform: PlatformOption = "",
    engine: EngineOption = "",
    rollout: RolloutOption = "",
    layout: LayoutOption = "",
    run: Annotated[
        Path | None,
        typer.Option(
            help="Judge this finished run instead of starting one: run folder or id, metrics "
            "file, or folder of files."
        ),
    ] = None,
    newest: Annotated[
        bool, typer.Option("--newest", help="Judge the recipe's newest finished run.")
    ] = False,
    no_wait: NoWaitOption = False,
    margin: MarginOption = None,
    accept: AcceptOption = None,
    series: SeriesOption = None,
    out: OutOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a recipe from pinned inputs to a judged training curve.

    The default recipe, rehearsal, trains a tiny model with real verl, Ray and vLLM on this
    machine's CPU. Exit code 0: PASS; 1: FAIL; 2: INCONCLUSIVE, or it could not run.
    """
    from reprise.flows.preconditions import check_preconditions
    from reprise.flows.rehearsal import RehearsalOptions
    from reprise.flows.reproduce import Judging, judge_folder, reproduce_rehearsal
    from reprise.recipe.card import card_of

    project = find_project()
    card_of(project.recipes, model)
    if run is not None and newest:
        raise OperatorError("reproduce-run.newest", str(run))
    if run is not None or newest:
        given = {"--seed": seed, "--steps": steps, "--ranks": ranks, "--arch": arch, "--algo": algo}
        where = {"--platform": platform, "--engine": engine}
        where |= {"--rollout": rollout, "--layout": layout}
        _nothing_else({**given, **where, "overrides": overrides})
        how = Judging(margin, tuple(accept or ()), series, out)
        judged = judge_folder(project, model, run, how)
    elif model == "rehearsal":
        chosen = tuple(overrides or ())
        place = _place(platform, engine, rollout, layout)
        options = RehearsalOptions(
            1 if seed is None else seed,
            steps,
            ranks or 1,
            arch or DEFAULT_ARCH,
            algo,
            chosen,
            place=place,
            wait=not no_wait,
        )
        proceed(check_preconditions(project, options, "reproduce"), as_json)
        judged = reproduce_rehearsal(project, options)
    else:
        raise OperatorError("reproduce-cluster.recipe-needs-cluster", model, model=model)
    _finish(judged, as_json)


def _place(platform: str, engine: str, rollout: str, layout: str = "") -> Target:
    return Target(
        platform or DEFAULT.platform,
        engine or DEFAULT.engine,
        layout or DEFAULT.layout,
        rollout or DEFAULT.rollout,
    )


def _nothing_else(settings: Mapping[str, object]) -> None:
    """A finished run is judged as it is: a setting given with it would change nothing."""
    given = [name for name, value in settings.items() if value not in (None, "", [])]
    if given:
        raise OperatorError("reproduce-run.finished-run-judged", ", ".join(given))


@guard("baseline")
def baseline(
    model: Annotated[str, typer.Argument(help="Recipe to record.")] = "rehearsal",
    seeds: Annotated[int, typer.Option(min=2, help="Number of seeds.")] = 8,
    replace_other: Annotated[
        bool, typer.Option("--replace", help="Replace a reference of another lock or recipe.")
    ] = False,
    platform: PlatformOption = "",
    engine: EngineOption = "",
    rollout: RolloutOption = "",
    arch: ArchOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Record reference runs of a recipe; an interrupted recording continues where it stopped."""
    if model != "rehearsal":
        raise OperatorError("baseline-model.only-rehearsal-s", model)
    from reprise.flows.baseline import BaselineOptions, check_baseline, record_baseline

    project = find_project()
    place = _place(platform, engine, rollout)
    options = BaselineOptions(seeds, replace_other, place=place, arch=arch or DEFAULT_ARCH)
    proceed(check_baseline(project, options), as_json)
    finish(record_baseline(project, options), as_json)


def _finish(judged: Judged, as_json: bool) -> None:
    """Print the verdict with its numbers; findings of its checks are not repeated."""
    report = judged.report
    if judged.judgement is not None and not as_json:
        typer.echo(judged.judgement.text())
        if "report" in report.data:
            typer.echo(f"report: {report.data['report']}")
        own = {check.rule for check in judged.judgement.checks}
        said = judged.judgement.all_notes()
        extra = [f for f in report.findings if f.rule not in own and f not in said]
        report = replace(report, findings=extra)
    finish(report, as_json)
