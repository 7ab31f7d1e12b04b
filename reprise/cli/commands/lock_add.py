"""`reprise lock add model | data | tree | image`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.findings import Report
from reprise.core.progress import task
from reprise.core.project import find_project

if TYPE_CHECKING:
    from reprise.flows.lock.add import Added

__all__ = ["group"]

group = typer.Typer(help="Add an entry to the lock, with its hashes.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Name of the new entry: a-z, 0-9 and dashes.")]
ForMachines = Annotated[
    list[str] | None,
    typer.Option("--machine", help="Machine that uses it (repeatable), for example h20."),
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", help="Branch, tag or commit; default: main, HEAD of a tree."),
]
UnpinnedOption = Annotated[
    str,
    typer.Option("--unpinned", help="Reason why the hashes are not known now; asks no server."),
]
NoteOption = Annotated[str, typer.Option(help="Note that the entry keeps.")]


def _added(
    name: str, machine: list[str] | None, to: str | None, unpinned: str, note: str, progress: Any
) -> Added:
    from reprise.flows.lock.add import Added

    return Added(name, tuple(machine or ()), to, unpinned, note, progress)


def _finish(report: Report, as_json: bool) -> None:
    if not as_json and "values" in report.data:
        typer.echo(f"[{report.data['entry']}]")
        for key, value in report.data["values"].items():
            typer.echo(f"{key} = {value}")
        machines = ", ".join(report.data["machines"]) or "no machine"
        typer.echo(f"hashes changed for {machines}")
    finish(report, as_json)


@group.command("model")
@guard("lock add model")
def model(
    name: NameArgument,
    source: Annotated[str, typer.Argument(help="Folder of weights, or OWNER/NAME on the hub.")],
    machine: ForMachines = None,
    to: ToOption = None,
    unpinned: UnpinnedOption = "",
    note: NoteOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Add a model: a folder (every file is hashed) or a repository of the hub (its revision).

    A folder is checked first, as `reprise model check` does; a damaged one is not added.
    """
    from reprise.flows.lock.add import add_model

    with task("hash", None, "bytes") as shown:
        added = _added(name, machine, to, unpinned, note, shown.advance)
        report = add_model(find_project(), added, source)
    _finish(report, as_json)


@group.command("data")
@guard("lock add data")
def data(
    name: NameArgument,
    source: Annotated[str, typer.Argument(help="File, or OWNER/NAME of a data set on the hub.")],
    file: Annotated[str | None, typer.Option(help="File in the repository on the hub.")] = None,
    path: Annotated[
        str | None, typer.Option(help="Place below DATA_DIR; default: NAME/FILE.")
    ] = None,
    machine: ForMachines = None,
    to: ToOption = None,
    unpinned: UnpinnedOption = "",
    note: NoteOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Add a data file: one on this machine (hashed, its rows counted) or one of the hub."""
    from reprise.flows.lock.add import add_data

    with task("read", None, "rows") as shown:
        added = _added(name, machine, to, unpinned, note, shown.advance)
        report = add_data(find_project(), added, source, file, path)
    _finish(report, as_json)


@group.command("tree")
@guard("lock add tree")
def tree(
    name: NameArgument,
    source: Annotated[str, typer.Argument(help="Checkout, or URL of a git repository.")],
    path: Annotated[
        str | None, typer.Option(help="Place in the project; default: third_party/NAME.")
    ] = None,
    import_root: Annotated[
        str, typer.Option(help="What belongs on PYTHONPATH, relative to the tree.")
    ] = "",
    import_package: Annotated[str, typer.Option(help="Package that must be below it.")] = "",
    distribution: Annotated[str, typer.Option(help="Its name in Python's metadata.")] = "",
    release: Annotated[str, typer.Option(help="Its version at that commit.")] = "",
    machine: ForMachines = None,
    to: ToOption = None,
    unpinned: UnpinnedOption = "",
    note: NoteOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Add a source tree: a checkout without changes, or a repository at a reference."""
    from reprise.flows.lock.add import add_tree
    from reprise.trees.sources import mirrors_from

    keys = {
        "path": path or "",
        "version": release,
        "import_root": import_root,
        "import_package": import_package,
        "distribution": distribution,
    }
    added = _added(name, machine, to, unpinned, note, None)
    _finish(add_tree(find_project(), added, source, keys, mirrors_from([])), as_json)


@group.command("image")
@guard("lock add image")
def image(
    name: NameArgument,
    source: Annotated[str, typer.Argument(help="REPOSITORY:TAG.")],
    platform: Annotated[str, typer.Option(help="Platform of the image.")] = "linux/amd64",
    machine: ForMachines = None,
    unpinned: UnpinnedOption = "",
    note: NoteOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Add a container image; a registry, or the local engine, gives its digest."""
    from reprise.flows.lock.add import add_image

    added = _added(name, machine, None, unpinned, note, None)
    _finish(add_image(find_project(), added, source, platform), as_json)
