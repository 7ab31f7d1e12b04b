"""`reprise hosts` and `reprise doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprise.cli.render import JsonFlag, finish, guard
from reprise.cluster.doctor import diagnose
from reprise.cluster.hostfile import DEFAULT_SLOTS, read_hostfile
from reprise.cluster.marks import Marks
from reprise.findings import Severity
from reprise.pipeline_cluster import Selection, look_at, select
from reprise.project import find_project

__all__ = ["register"]

HostfileArgument = Annotated[Path, typer.Argument(help="Hosts, one a line; the first is the head.")]
IncludeOption = Annotated[
    list[str] | None, typer.Option(help="Only these hosts: node01,node[03-07].")
]
ProfileOption = Annotated[
    str | None, typer.Option(help="h20, s5000 or cpu; default: the site file's.")
]
ExcludeOption = Annotated[list[str] | None, typer.Option(help="Without these hosts.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(hosts)
    app.command()(doctor)


@guard("hosts")
def hosts(
    hostfile: HostfileArgument,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    default_slots: Annotated[
        int, typer.Option(min=1, help="Slots of a host that states none.")
    ] = DEFAULT_SLOTS,
    as_json: JsonFlag = False,
) -> None:
    """Read a hostfile and print its hosts; nothing is contacted."""
    report, found = read_hostfile(hostfile, include or (), exclude or (), default_slots)
    if found is not None and not as_json:
        for host in found.hosts:
            words = [host.name, f"slots={host.slots}"]
            words += [
                f"{key}={value}"
                for key, value in host.to_json().items()
                if key in ("user", "port", "ip") and value is not None
            ]
            typer.echo(" ".join(words) + ("  # head" if host is found.head else ""))
        typer.echo(f"{len(found.hosts)} hosts, {found.slots} slots")
    finish(report, as_json)


@guard("doctor")
def doctor(
    hostfile: Annotated[
        Path | None, typer.Argument(help="Hosts to look at; default: this machine alone.")
    ] = None,
    profile: ProfileOption = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Look at every host at once: is it what training needs, and like the others.

    Nothing is changed on the hosts, and nothing that runs there is disturbed. Exit code 0: fine;
    1: something is wrong; 2: something could not be found out.
    """
    read, selection = select(hostfile, profile, include or (), exclude or ())
    if selection is None:
        finish(read, as_json)
    report, marks = diagnose(look_at(selection, find_project()))
    report.findings = [*selection.notes.findings, *report.findings]
    if not as_json:
        _print_groups(selection, marks)
    finish(report, as_json)


def _print_groups(selection: Selection, marks: Marks) -> None:
    """One line for all hosts of which there is nothing to tell, then the others."""
    for names, told in marks.groups([host.name for host in selection.hosts]):
        errors = sum(mark.severity is Severity.ERROR for mark in told)
        words = [f"{mark.rule}" for mark in told]
        said = f"{errors} errors, {len(told) - errors} warnings ({', '.join(dict.fromkeys(words))})"
        typer.echo(f"{names}: {said if told else 'ok'}")
