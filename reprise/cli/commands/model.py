"""`reprise model fetch | check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprise.cli.bars import showing
from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.project import find_project
from reprise.flows.models import ModelRequest, Origin, Where, check_model, fetch_locked_model

__all__ = ["register"]

group = typer.Typer(help="Model weights.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the command group to `app`."""
    app.add_typer(group, name="model")


@group.command()
@guard("model fetch")
def fetch(
    name: Annotated[str, typer.Argument(help="Model of the lock.")],
    folder: Annotated[Path, typer.Argument(help="Folder on shared storage to put it in.")],
    modelscope: Annotated[
        bool, typer.Option("--modelscope", help="From ModelScope instead of the hub.")
    ] = False,
    mirror: Annotated[
        str | None, typer.Option(help="Endpoint in the place of HF_ENDPOINT and the public one.")
    ] = None,
    local: Annotated[
        Path | None, typer.Option("--from", help="Folder that holds the model already.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="ModelScope's own revision; default: master.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Fetch a locked model's files, each checked; then check the whole.

    Config and weight index must be the locked ones before any weights are fetched. Safe to
    interrupt and to repeat: what is there and right is not fetched again.
    """
    origin: Origin = "modelscope" if modelscope else "hub"
    with showing() as (bars, say):
        request = ModelRequest(name, folder, origin, mirror, local, revision)
        report = fetch_locked_model(find_project(), request, bars, say)
    finish(report, as_json)


@group.command()
@guard("model check")
def check(
    folder: Annotated[Path, typer.Argument(help="Folder with config.json and safetensors.")],
    name: Annotated[
        str | None, typer.Option("--lock", help="Model of the lock that it must be.")
    ] = None,
    hostfile: Annotated[
        Path | None, typer.Option(help="Look on every host of this file, over SSH, instead.")
    ] = None,
    include: Annotated[list[str] | None, typer.Option(help="Only these hosts of it.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Without these hosts of it.")] = None,
    host: Annotated[list[str] | None, typer.Option(help="Look on this host; repeatable.")] = None,
    ssh_config: Annotated[
        Path | None, typer.Option(help="ssh's configuration; default: the site file's.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a folder of weights: index, every shard's header and size, LFS pointers, config.

    Reads no weights. On hosts the same folder is looked at on each, all at once, and they must
    agree; they need python3 and nothing else.
    """
    where = Where(
        hostfile, tuple(include or ()), tuple(exclude or ()), tuple(host or ()), ssh_config
    )
    report = check_model(find_project(), folder.absolute(), name, where)
    if not as_json:
        for item in report.data.get("hosts", ()):
            if "unknown" not in item:
                typer.echo(
                    f"{item['host']}: {item['shards']} shards, {item['tensors']:,} tensors, "
                    f"{item['bytes']:,} bytes"
                )
    finish(report, as_json)
