"""`reprise train`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reprise.cli.commands.machines import MachineOption, OldName, one_of
from reprise.cli.options import AlgorithmOption, NoWaitOption
from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.errors import OperatorError
from reprise.core.project import find_project

if TYPE_CHECKING:
    from reprise.flows.train.job import TrainOptions

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(train)


@guard("train")
def train(
    model: Annotated[str, typer.Argument(help="Recipe; not needed with --resume.")] = "",
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="The hostfile, if any; Hydra overrides (name=value) after --."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Existing Ray cluster: http://HEAD:8265. Default: RAY_ADDRESS."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(help="Resume this run: its id, the start or end of the id, or its folder."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check, write the run folder, submit nothing.")
    ] = False,
    force: Annotated[
        list[str] | None,
        typer.Option(help="Downgrade the errors of this rule to warnings; it is recorded."),
    ] = None,
    attempts: Annotated[int, typer.Option(min=1, help="Maximum attempts of this command.")] = 3,
    no_wait: NoWaitOption = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return as soon as the job is submitted.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="Seed of data order and sampling; with --seeds, the first.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=2, help="Train so many seeds, one after another; the same command goes on."
        ),
    ] = None,
    algo: AlgorithmOption = "",
    machine: MachineOption = None,
    profile: OldName = None,
    storage: Annotated[
        str | None,
        typer.Option(help="Folder on the nodes for output, if not accessible from this machine."),
    ] = None,
    stall: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds without progress after which a job is ended."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a recipe, submit it, and supervise it through failures to its last step.

    Where: the cluster of a hostfile, which is started; an existing Ray cluster (--address), where
    nothing is started or stopped; for the recipe rehearsal alone, a private Ray on this machine.
    Ctrl-C leaves the job running. After a failure the next attempt continues from the
    newest complete checkpoint.
    """
    words = list(overrides or [])
    hostfile = Path(words.pop(0)) if words and not _is_override(words[0]) else None
    from reprise.flows.train.train import TrainOptions, resume_run
    from reprise.flows.train.train import train as train_recipe
    from reprise.runs.state.folder import find_run

    options = TrainOptions(
        model=model,
        hostfile=hostfile,
        address=address or (None if hostfile else os.environ.get("RAY_ADDRESS")),
        machine=one_of(machine, profile),
        storage=storage,
        seed=seed,
        algo=algo,
        overrides=tuple(words),
        force=tuple(force or ()),
        attempts=attempts,
        dry_run=dry_run,
        detach=detach,
        wait=not no_wait,
        stall=stall,
    )
    project = find_project()
    if seeds is not None and (detach or resume is not None):
        option = "--detach" if detach else "--resume"
        raise OperatorError("train-seeds.one-at-a-time", option, option=option)
    if resume is not None:
        # RAY_ADDRESS does not apply to a run that has its own address.
        options = replace(options, address=address)
        _nothing_else(options)
        finish(resume_run(project, find_run(project.runs, resume), options), as_json)
    if not model:
        raise OperatorError("train-model.expected-recipe-resume", "reprise train")
    if hostfile is not None and address is not None:
        raise OperatorError("train-place.hostfile-address-given", f"{hostfile} and {address}")
    if seeds is not None:
        from reprise.flows.train.seeds import train_seeds

        finish(train_seeds(project, options, seeds), as_json)
    finish(train_recipe(project, options), as_json)


def _is_override(word: str) -> bool:
    return "=" in word or word.startswith("~")


def _nothing_else(options: TrainOptions) -> None:
    """A run is resumed as it was started: another setting would be another run."""
    given = [
        name
        for name, value in (
            ("a recipe", options.model),
            ("a hostfile", options.hostfile),
            ("overrides", options.overrides),
            ("--seed", options.seed),
            ("--algo", options.algo),
            ("--storage", options.storage),
            ("--dry-run", options.dry_run),
        )
        if value
    ]
    if given:
        raise OperatorError("train-resume.run-taken-up", ", ".join(given))
