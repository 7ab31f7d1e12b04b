"""`reprise image build | verify | save | load | run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reprise.cli.commands.machines import MachineOption, chosen_machine, one_of
from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.errors import OperatorError
from reprise.core.files import write_text
from reprise.core.progress import task
from reprise.core.project import find_project

if TYPE_CHECKING:
    from reprise.images.files import Kind

__all__ = ["register"]

NameArgument = Annotated[str, typer.Argument(help="As --machine.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(help="The images of docker/: build, verify on hosts, save, load, run.")
    group.command("build")(build)
    group.command("verify")(verify)
    group.command("save")(save)
    group.command("load")(load)
    group.command("run", context_settings={"ignore_unknown_options": True})(run)
    app.add_typer(group, name="image")


def _kind(machine: str | None, name: str) -> Kind:
    """The image of the machine named; without a name, of the detected machine."""
    from reprise.images.files import kind_named

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
    target: Annotated[str, typer.Option(help="Last stage to build; default: all stages.")] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Build without the engine's cache.")
    ] = False,
    name_file: Annotated[
        Path | None, typer.Option(help="Also write the image's name to this file, for a script.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Build an image unless the engine already has it for these sources; prints its name.

    Packages come from pip's sources on this machine; docs/images.md lists the variables.
    """
    from reprise.images.build import BuildOptions, build_image

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
        raise OperatorError("image-arg.form", text)
    return name, value


@guard("image verify")
def verify(
    name: NameArgument = "",
    machine: MachineOption = None,
    hostfile: Annotated[
        Path | None, typer.Option(help="Hosts to check; default: this machine.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(help="Image; default: the site file's, else the newest built here."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check that the hosts have and run the same image, built from this lock.

    Exit code 0: yes; 1: something differs; 2: something is unknown.
    """
    from reprise.flows.cluster.hosts import select
    from reprise.flows.images import verify_images

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
    file: Annotated[Path, typer.Argument(help="Archive to write, with FILE.sha256.")],
    machine: MachineOption = None,
    name: Annotated[str, typer.Option("--name", hidden=True)] = "",
    image: Annotated[str | None, typer.Option(help="Image; default: the newest built.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write an image to a file, for hosts without access to a registry."""
    from reprise.images.carry import newest, save_image
    from reprise.images.engine import find_engine
    from reprise.lock.read import read_lock

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
    from reprise.images.carry import load_image

    with task(f"loading {file.name}"):
        report = load_image(file)
    if not as_json:
        for text in report.data["loaded"]:
            typer.echo(text)
    finish(report, as_json)


@guard("image run")
def run(
    words: Annotated[list[str], typer.Argument(help="A command of reprise, with its options.")],
    image: Annotated[str | None, typer.Option(help="Image; default: built if needed.")] = None,
    base: Annotated[str, typer.Option(help="NAME@sha256:... to build on.")] = "",
) -> None:
    """Run a command of reprise in a container of the cpu image; ends with its exit code."""
    from reprise.flows.images import run_inside
    from reprise.images.build import BuildOptions, build_image
    from reprise.images.files import kind_named

    if image is not None and base:
        raise OperatorError("image-base.conflict", "--image and --base")
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
