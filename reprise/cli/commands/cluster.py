"""`reprise init`, `reprise hosts`, `reprise doctor` and `reprise cluster up | status | down`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprise.cli.commands.machines import MachineOption, OldName, one_of
from reprise.cli.render import JsonFlag, finish, guard
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.hostfile import DEFAULT_SLOTS, read_hostfile
from reprise.core.findings import Severity
from reprise.core.project import find_project
from reprise.flows.cluster import Selection, examine, init_site, select
from reprise.flows.cluster_up import (
    UpOptions,
    cluster_down,
    cluster_status,
    cluster_up,
    watch_cluster,
)

__all__ = ["register"]

HostfileArgument = Annotated[Path, typer.Argument(help="Hosts, one a line; the first is the head.")]
IncludeOption = Annotated[
    list[str] | None, typer.Option(help="Only these hosts: node01,node[03-07].")
]
ExcludeOption = Annotated[list[str] | None, typer.Option(help="Without these hosts.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(init)
    app.command()(hosts)
    app.command()(doctor)
    group = typer.Typer(
        help="Ray on the hosts of a hostfile: start it, look at it, stop it.",
        no_args_is_help=True,
    )
    group.command("up")(up)
    group.command("status")(status)
    group.command("down")(down)
    app.add_typer(group, name="cluster")


@guard("init")
def init(
    hostfile: Annotated[Path, typer.Argument(help="Hostfile to write.")] = Path("hostfile"),
    machine: MachineOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Look around once; write a site file (SITE=, or in ~/.config/reprise) and a hostfile to edit.

    Looks at this machine's network interfaces and routes, shared mounts, proxies, and the node list
    of a SLURM, PBS or Kubernetes allocation. A file that is there already is left as it is.
    """
    finish(init_site(find_project(), hostfile, machine), as_json)


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
    machine: MachineOption = None,
    profile: OldName = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    active: Annotated[
        bool,
        typer.Option("--active", help="Also an all-reduce: it uses the GPUs and the network."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Look at every host at once: is it what training needs, and like the others.

    Nothing is changed on the hosts, and nothing that runs there is disturbed, but for what --active
    asks for. Exit code 0: fine;
    1: something is wrong; 2: something could not be found out.
    """
    read, selection = select(hostfile, one_of(machine, profile), include or (), exclude or ())
    if selection is None:
        finish(read, as_json)
    report, marks = examine(selection, find_project(), active)
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


@guard("cluster up")
def up(
    hostfile: HostfileArgument,
    machine: MachineOption = None,
    profile: OldName = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print each host's exact command; start nothing.")
    ] = False,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A rule whose errors do not hinder the start.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Start Ray on every host, and prove that every node and GPU is there.

    The doctor looks first; nothing is started while it finds an error. A second call changes
    nothing on a whole cluster and brings back the missing nodes of another. When a start fails,
    what was started is stopped.
    """
    read, selection = select(hostfile, one_of(machine, profile), include or (), exclude or ())
    if selection is None:
        finish(read, as_json)
    report = cluster_up(selection, find_project(), UpOptions(dry_run, ignore or ()))
    if not as_json:
        for name, command in report.data.get("commands", {}).items() if dry_run else ():
            typer.echo(f"{name}: {command}")
        cluster = report.data.get("cluster")
        if cluster is not None and report.exit_code == 0 and not dry_run:
            typer.echo(f"RAY_ADDRESS={cluster['address']}")
            typer.echo(f"RAY_AUTH_TOKEN_PATH={cluster['token_file']}")
    finish(report, as_json)


@guard("cluster status")
def status(
    hostfile: HostfileArgument,
    watch: Annotated[
        float | None, typer.Option(min=1, help="Ask again every so many seconds, tell changes.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """What the cluster is now: the head's own list of nodes, and each host's word on itself."""
    read, selection = select(hostfile, None)
    if selection is None:
        finish(read, as_json)
    if watch is not None:
        watch_cluster(selection, find_project(), watch, typer.echo)
    report = cluster_status(selection, find_project())
    if not as_json:
        for node in report.data["nodes"]:
            gpus = "?" if node["gpus"] is None else f"{node['gpus']:g}"
            typer.echo(f"{node['name']} {node['ip']} {node['state']} {gpus} GPUs")
    finish(report, as_json)


@guard("cluster down")
def down(hostfile: HostfileArgument, as_json: JsonFlag = False) -> None:
    """Stop this hostfile's cluster and nothing else, and prove that nothing of it is left."""
    read, selection = select(hostfile, None)
    if selection is None:
        finish(read, as_json)
    finish(cluster_down(selection, find_project()), as_json)
