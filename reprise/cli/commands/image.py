"""`reprise image build | verify | save | load | run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprise.cli.commands.machines import MachineOption, chosen_machine, one_of
from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.errors import OperatorError
from reprise.core.files import write_text
from reprise.core.progress import task
from reprise.core.project import find_project
from reprise.flows.cluster import select
from reprise.flows.images import run_inside, verify_images
from reprise.images.build import BuildOptions, build_image
from reprise.images.carry import load_image, newest, save_image
from reprise.images.engine import find_engine
from reprise.images.files import Kind, kind_named
from reprise.lock.read import read_lock

__all__ = ["register"]

NameArgument = Annotated[str, typer.Argument(help="As --machine.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(help="The images of docker/: build, verify on hosts, carry, run.")
    group.command("build")(build)
    group.command("verify")(verify)
    group.command("save")(save)
    group.command("load")(load)
    group.command("run", context_settings={"ignore_unknown_options": True})(run)
    app.add_typer(group, name="image")


def _kind(machine: str | None, name: str) -> Kind:
    """The image of the machine named; without a name, of the one that this seems to be."""
    return kind_named(chosen_machine(one_of(machine, name))[0].name)


@guard("image build")
def build(
    name: NameArgument = "",
    machine: MachineOption = None,
    base: Annotated[
        str, typer.Option(help="NAME@sha256:... to build on; default: the lock's image.")
    ] = "",
    arg: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the build (RUN_AS, APT_SOURCES).")
    ] = None,
    target: Annotated[str, typer.Option(help="Stage to end at; default: the last.")] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Build without the engine's cache.")
    ] = False,
    name_file: Annotated[
        Path | None, typer.Option(help="Also write the image's name to this file, for a script.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Build an image unless the engine holds it as these sources give it; prints its name.

    Packages come from where pip takes them on this machine; docs/images.md lists the variables.
    """
    kind = _kind(machine, name)
    args = dict(_pair(text) for text in arg or ())
    options = BuildOptions(base, target, args, again)
    with task(f"image {kind.name}") as shown:
        report = build_image(
            find_project().lock, kind, options, lambda text: shown.update(shown.done + 1, text)
        )
    if name_file is not None:
        write_text(name_file, f"{report.data['image']}\n")
    if not as_json:
        typer.echo(report.data["image"])
    finish(report, as_json)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise OperatorError("image-arg.expected-name-value", text)
    return name, value


@guard("image verify")
def verify(
    name: NameArgument = "",
    machine: MachineOption = None,
    hostfile: Annotated[
        Path | None, typer.Option(help="Hosts to look at; default: this machine.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(help="Image; default: the site file's, else the newest built here."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Is the image that the hosts hold and run built from this lock, and the same everywhere.

    Exit code 0: yes; 1: something differs; 2: something could not be found out.
    """
    kind = _kind(machine, name)
    selection = None
    if hostfile is not None:
        read, selection = select(hostfile, None)
        if selection is None:
            finish(read, as_json)
    report = verify_images(find_project(), kind, selection, image)
    if not as_json:
        for host, identity in report.data["hosts"].items():
            typer.echo(f"{host}: {report.data['image']} {identity[:19]}")
    finish(report, as_json)


@guard("image save")
def save(
    file: Annotated[Path, typer.Argument(help="Archive to write; its SHA-256 goes beside it.")],
    machine: MachineOption = None,
    name: Annotated[str, typer.Option("--name", hidden=True)] = "",
    image: Annotated[str | None, typer.Option(help="Image; default: the newest built.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write an image to a file, for hosts that no registry reaches."""
    lock = read_lock(find_project().lock)
    chosen = image or newest(find_engine(), lock, _kind(machine, name))
    with task(f"saving {chosen}"):
        report = save_image(chosen, file)
    finish(report, as_json)


@guard("image load")
def load(
    file: Annotated[Path, typer.Argument(help="Archive that `image save` wrote.")],
    as_json: JsonFlag = False,
) -> None:
    """Check an archive and load it into this machine's engine."""
    with task(f"loading {file.name}"):
        report = load_image(file)
    if not as_json:
        for text in report.data["loaded"]:
            typer.echo(text)
    finish(report, as_json)


@guard("image run")
def run(
    words: Annotated[list[str], typer.Argument(help="A command of reprise, with its options.")],
    image: Annotated[str | None, typer.Option(help="Image; default: built if need be.")] = None,
    base: Annotated[str, typer.Option(help="NAME@sha256:... to build it on.")] = "",
) -> None:
    """Run a command of reprise in a container of the cpu image; ends with its exit code."""
    if image is not None and base:
        raise OperatorError("image-base.image-already-built", "--image and --base")
    project = find_project()
    if image is None:
        with task("image cpu") as shown:
            report = build_image(
                project.lock,
                kind_named("cpu"),
                BuildOptions(base),
                lambda text: shown.update(shown.done + 1, text),
            )
        image = str(report.data["image"])
    raise typer.Exit(run_inside(project, image, words))
