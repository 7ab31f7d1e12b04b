"""`reprise hosts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprise.cli.render import JsonFlag, finish, guard
from reprise.cluster.hostfile import DEFAULT_SLOTS, read_hostfile

__all__ = ["register"]

HostfileArgument = Annotated[Path, typer.Argument(help="Hosts, one a line; the first is the head.")]
IncludeOption = Annotated[
    list[str] | None, typer.Option(help="Only these hosts: node01,node[03-07].")
]
ExcludeOption = Annotated[list[str] | None, typer.Option(help="Without these hosts.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(hosts)


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
