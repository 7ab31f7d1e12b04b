"""`reprise lock check | verify | update | upgrade | add | image`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reprise.cli.commands import lock_add
from reprise.cli.commands.machines import MachineOption, chosen_machine
from reprise.cli.options import MirrorOption, NoWaitOption
from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.project import find_project

__all__ = ["register"]

_STATES = {"ok": "green", "unknown": "yellow"}


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(help="The lock: check it, compare reality with it, add or update entries.")
    group.command("check")(check)
    group.command("verify")(verify)
    group.command("update")(update)
    group.command("upgrade")(upgrade)
    group.command("image")(image)
    group.add_typer(lock_add.group, name="add")
    app.add_typer(group, name="lock")


@guard("lock check")
def check(
    file: Annotated[
        Path | None, typer.Argument(help="The lock; default: versions.lock of the project.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check the lock itself: form, full hashes, known contradictions, requirements files."""
    from reprise.lock.check import check_lock

    finish(check_lock(file or find_project().lock), as_json)


@guard("lock verify")
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="Entries, or runtime_env; default: the machine's.")
    ] = None,
    machine: MachineOption = None,
    python: Annotated[
        Path | None, typer.Option(help="Interpreter in which the packages should be.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the data files; default: DATA_DIR, else the root."),
    ] = None,
    plain_ray: Annotated[
        bool, typer.Option(help="Check the package that a plain `ray job submit` makes.")
    ] = False,
    remote: Annotated[
        bool, typer.Option(help="Also ask servers whether the tags still name the locked commits.")
    ] = False,
    answers: Annotated[
        Path | None,
        typer.Option(help="Combine the --json answers of many hosts: a folder of HOST.json files."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare reality with the lock: checkouts, files, packages, images, Ray's package.

    Exit code 0: all ok; 1: something differs, is dirty or missing; 2: something is unknown.
    """
    from reprise.flows.lock.answers import combine
    from reprise.flows.lock.reality import verify as verify_lock
    from reprise.lock.rows import ThisMachine
    from reprise.trees.sources import mirrors_from

    if answers is not None:
        report = combine(answers)
        if not as_json:
            _print_rows(report)
        finish(report, as_json)
    project = find_project()
    kind, why = chosen_machine(machine)
    here = ThisMachine(project.root, python, data)
    mirrors = mirrors_from([]) if remote else None
    report = verify_lock(project.lock, names or [], kind.lock, here, plain_ray, mirrors)
    if not as_json:
        typer.echo(f"machine: {kind.name} ({why})")
        _print_rows(report)
    finish(report, as_json)


@guard("lock update")
def update(
    name: Annotated[str, typer.Argument(help="Entry to update.")],
    to: Annotated[
        str | None, typer.Option(help="Branch, tag, commit or version; default: what it wants.")
    ] = None,
    mirror: MirrorOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Resolve one entry and rewrite its lines in the lock; all other bytes stay."""
    from reprise.flows.lock.update import update_entry
    from reprise.trees.sources import mirrors_from

    report = update_entry(find_project().lock, name, to, mirrors_from(mirror or []))
    if not as_json:
        moved = report.data["moved"]
        for row in moved:
            typer.echo(f"{row['key']}: {row['old'] or '(none)'} -> {row['new'] or '(none)'}")
        machines = ", ".join(report.data["machines"]) or "no machine"
        typer.echo(
            f"{report.data['entry']}: {len(moved)} values changed; hashes changed for {machines}"
        )
    finish(report, as_json)


@guard("lock upgrade")
def upgrade(
    name: Annotated[str, typer.Argument(help="Tree of the lock.")],
    to: Annotated[str, typer.Option(help="Branch, tag or commit.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Rewrite the lock, if nothing is wrong.")
    ] = False,
    rehearse: Annotated[
        bool,
        typer.Option("--rehearse", help="Run the CPU rehearsal with both trees and compare them."),
    ] = False,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Steps of each rehearsal; default: those of the recipe."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of both rehearsals.")] = 1,
    mirror: MirrorOption = None,
    no_wait: NoWaitOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare a tree at another commit with the locked one, in a copy of the lock.

    Contradictions; for verl also each recipe that uses it: keys that are gone, defaults that moved,
    new errors of the recipe check, judged metrics that are gone. Where none of this is wrong,
    --rehearse trains with the locked tree and with the new one, and compares the curves. The lock
    moves with --apply only, and not if anything is wrong or unknown.
    """
    from reprise.core.progress import error_console
    from reprise.flows.lock.upgrade import upgrade_tree
    from reprise.flows.rehearsal import RehearsalOptions
    from reprise.trees.sources import mirrors_from

    say = error_console(soft_wrap=True).print
    if steps is not None and not rehearse:
        raise OperatorError("lock-rehearsal.steps-alone", "--steps")
    options = RehearsalOptions(seed, steps, wait=not no_wait) if rehearse else None
    mirrors = mirrors_from(mirror or [])
    report = upgrade_tree(find_project(), name, to, mirrors, apply, say, options)
    if not as_json:
        for row in report.data["moved"]:
            typer.echo(f"{row['key']}: {row['old'] or '(none)'} -> {row['new'] or '(none)'}")
        typer.echo("the lock was rewritten" if report.data["applied"] else "the lock is unchanged")
    finish(report, as_json)


@guard("lock image")
def image(
    names: Annotated[
        list[str] | None, typer.Argument(help="Images of the lock; default: all.")
    ] = None,
    write: Annotated[
        bool, typer.Option(help="Write the digests of images not locked yet.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Ask a registry for the digests of image tags; reject a tag that moved since the lock.

    Asks the entry's mirrors, then its registry, then the container engine of this machine.
    """
    from reprise.flows.lock.update import lock_images

    finish(lock_images(find_project().lock, names or [], write), as_json)


def _print_rows(report: Report) -> None:
    rows: list[dict[str, Any]] = report.data["rows"]
    hosts = ["host"] if any("host" in row for row in rows) else []
    table = Table(*hosts, "entry", "state", "expected", "found", box=None, pad_edge=False)
    for row in rows:
        state = Text(row["state"], style=_STATES.get(row["state"], "red"))
        cells = [row["entry"], state, _short(row["expected"]), _short(row["found"])]
        table.add_row(*([row["host"], *cells] if hosts else cells))
    Console(highlight=False).print(table)


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"
