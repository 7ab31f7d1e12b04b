"""`reprise init`, `hosts`, `doctor` and `cluster up | env | status | down`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from reprise.cli.commands.machines import MachineOption, OldName, one_of
from reprise.cli.render import JsonFlag, finish, guard
from reprise.cluster.hosts.hostfile import DEFAULT_SLOTS
from reprise.core.errors import OperatorError
from reprise.core.findings import Report, Severity
from reprise.core.project import find_project

if TYPE_CHECKING:
    from reprise.cluster.doctor.marks import Marks
    from reprise.flows.cluster.hosts import Selection

__all__ = ["register"]

HostfileArgument = Annotated[
    Path, typer.Argument(help="Hostfile: one host per line, the first is the head.")
]
IncludeOption = Annotated[
    list[str] | None, typer.Option(help="Only these hosts: node01,node[03-07].")
]
ExcludeOption = Annotated[list[str] | None, typer.Option(help="All hosts except these: node02.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(init)
    app.command()(hosts)
    app.command()(doctor)
    group = typer.Typer(
        help="Ray on the hosts of a hostfile: start, connect, status, stop.",
        no_args_is_help=True,
    )
    group.command("up")(up)
    group.command("env")(env)
    group.command("status")(status)
    group.command("down")(down)
    app.add_typer(group, name="cluster")


@guard("init")
def init(
    hostfile: Annotated[Path, typer.Argument(help="Hostfile to write.")] = Path("hostfile"),
    machine: MachineOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Detect this site; write a site file (SITE=, or in ~/.config/reprise) and a hostfile to edit.

    Reads this machine's network interfaces and routes, shared mounts, proxies, and the node list
    of a SLURM, PBS or Kubernetes allocation. An existing file is left as it is.
    """
    from reprise.flows.cluster.hosts import init_site

    finish(init_site(find_project(), hostfile, machine), as_json)


@guard("hosts")
def hosts(
    hostfile: Annotated[Path | None, typer.Argument(help="Hostfile; - is standard input.")] = None,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Print a hostfile of this Slurm job's nodes instead.")
    ] = False,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    default_slots: Annotated[
        int, typer.Option(min=1, help="Slots of a host without slots=.")
    ] = DEFAULT_SLOTS,
    as_json: JsonFlag = False,
) -> None:
    """Check a hostfile and print its hosts; no host is contacted.

    Inside a Slurm job: reprise hosts --slurm > hostfile.
    """
    from reprise.cluster.hosts.hostfile import read_hostfile

    if slurm:
        _print_slurm(hostfile, default_slots, as_json)
    if hostfile is None:
        raise OperatorError("hostfile.required", "HOSTFILE")
    report, found = read_hostfile(hostfile, include or (), exclude or (), default_slots)
    if found is not None and not as_json:
        for host in found.hosts:
            words = [host.name, f"slots={host.slots}"]
            words += [
                f"{key}={value}"
                for key, value in host.to_json().items()
                if key in ("user", "port", "ip") and value is not None
            ]
            words += ["spare=yes"] if host.spare else []
            typer.echo(" ".join(words) + ("  # head" if host is found.head else ""))
        typer.echo(f"{len(found.hosts)} hosts, {found.slots} slots")
    finish(report, as_json)


def _print_slurm(hostfile: Path | None, default_slots: int, as_json: bool) -> NoReturn:
    """The nodes of the Slurm job as a hostfile on standard output."""
    from reprise.cluster.init import slurm_allocation

    found = slurm_allocation(os.environ)
    if hostfile is not None:
        raise OperatorError("hosts-slurm.with-hostfile", str(hostfile))
    if found is None:
        raise OperatorError("hosts-slurm.no-job", "SLURM_JOB_NODELIST")
    slots = found.slots or default_slots
    report = Report("hosts")
    report.passed("hosts-slurm")
    report.data["hosts"] = [{"name": name, "slots": slots} for name in found.hosts]
    if found.slots is None:
        report.data["slots_from"] = "default"
        typer.echo(f"the job does not report its GPUs: slots={slots} is the default", err=True)
    if not as_json:
        for name in found.hosts:
            typer.echo(f"{name} slots={slots}")
    finish(report, as_json, quiet_ok=True)


@guard("doctor")
def doctor(
    hostfile: Annotated[
        Path | None, typer.Argument(help="Hostfile to check; default: this machine alone.")
    ] = None,
    machine: MachineOption = None,
    profile: OldName = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    active: Annotated[
        bool,
        typer.Option(
            "--active",
            help="Also test GPUs, network and storage under load; needs idle GPUs, takes minutes.",
        ),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check that all hosts are ready for training and have the same setup.

    Safe while jobs run: it only reads, except for one small file in each shared folder, which it
    removes, and for the tests of --active.
    Exit code 0: fine; 1: a problem; 2: a check could not be evaluated.
    """
    from reprise.flows.cluster.hosts import examine, select

    read, selection = select(hostfile, one_of(machine, profile), include or (), exclude or ())
    if selection is None:
        finish(read, as_json)
    report, marks = examine(selection, find_project(), active)
    report.findings = [*selection.notes.findings, *report.findings]
    if not as_json:
        _print_groups(selection, marks)
    finish(report, as_json)


def _print_groups(selection: Selection, marks: Marks) -> None:
    """One line for all hosts without findings, then one for each group of other hosts."""
    for names, found in marks.groups([host.name for host in selection.hosts]):
        errors = sum(mark.severity is Severity.ERROR for mark in found)
        rules = ", ".join(dict.fromkeys(mark.rule for mark in found))
        shown = f"{errors} errors, {len(found) - errors} warnings ({rules})" if found else "ok"
        typer.echo(f"{names}: {shown}")


@guard("cluster up")
def up(
    hostfile: HostfileArgument,
    machine: MachineOption = None,
    profile: OldName = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print each host's exact command without starting it.")
    ] = False,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A rule whose errors become warnings.")
    ] = None,
    readmit: Annotated[
        list[str] | None, typer.Option(help="An evicted host that joins the running cluster again.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Start Ray on every host and wait until every node and GPU is listed.

    The doctor runs first; Ray starts only without errors. On a complete cluster, a second call
    changes nothing; on an incomplete one, it starts the missing workers. When a start fails, the
    started nodes are stopped.
    """
    from reprise.flows.cluster.hosts import select
    from reprise.flows.cluster.up import UpOptions, cluster_up

    read, selection = select(hostfile, one_of(machine, profile), include or (), exclude or ())
    if selection is None:
        finish(read, as_json)
    report = cluster_up(selection, find_project(), UpOptions(dry_run, ignore or (), readmit or ()))
    if not as_json:
        for name, command in report.data.get("commands", {}).items() if dry_run else ():
            typer.echo(f"{name}: {command}")
        cluster = report.data.get("cluster")
        if cluster is not None and report.exit_code == 0 and not dry_run:
            _print_exports(cluster["environment"])
    finish(report, as_json)


def _print_exports(variables: Mapping[str, str]) -> None:
    """Lines that a shell takes as they are, whatever the paths contain."""
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")


@guard("cluster env")
def env(hostfile: HostfileArgument, as_json: JsonFlag = False) -> None:
    """Print the variables that connect a shell to the cluster.

    In a shell: reprise cluster env HOSTFILE > cluster.env && . ./cluster.env.
    For `ray job submit`, Ray's SDK and `reprise train --address`. No host is contacted.
    """
    from reprise.flows.cluster.up import cluster_env

    try:
        report = cluster_env(hostfile)
    except OperatorError as error:
        if as_json:
            raise
        # A shell evaluates standard output.
        typer.echo(f"error {error.where}: {error.message}\n    fix: {error.fix}", err=True)
        raise typer.Exit(error.report("cluster env").exit_code) from None
    if not as_json:
        _print_exports(report.data["environment"])
    finish(report, as_json, quiet_ok=True)


@guard("cluster status")
def status(
    hostfile: HostfileArgument,
    watch: Annotated[
        float | None, typer.Option(min=1, help="Repeat every so many seconds and print changes.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the state of the cluster: the head's node list, and each host's own processes."""
    from reprise.flows.cluster.hosts import select
    from reprise.flows.cluster.up import cluster_status, watch_cluster

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
def down(
    hostfile: HostfileArgument,
    forget: Annotated[
        list[str] | None,
        typer.Option(help="A host that never answers again: forget what may be left there."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Stop this hostfile's cluster, and only that; check that nothing of it remains."""
    from reprise.flows.cluster.hosts import select
    from reprise.flows.cluster.up import cluster_down

    read, selection = select(hostfile, None)
    if selection is None:
        finish(read, as_json)
    finish(cluster_down(selection, find_project(), forget or ()), as_json)
