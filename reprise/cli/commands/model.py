"""`reprise model fetch | check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprise.cli.bars import showing
from reprise.cli.options import EndpointOption
from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.project import find_project

__all__ = ["register"]

group = typer.Typer(help="Model weights.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the command group to `app`."""
    app.add_typer(group, name="model")


@group.command()
@guard("model fetch")
def fetch(
    name: Annotated[str, typer.Argument(help="Model in the lock.")],
    folder: Annotated[Path, typer.Argument(help="Target folder on shared storage.")],
    modelscope: Annotated[
        bool, typer.Option("--modelscope", help="Fetch from ModelScope instead of the hub.")
    ] = False,
    mirror: EndpointOption = None,
    local: Annotated[
        Path | None, typer.Option("--from", help="Folder to copy the model from.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="Revision on ModelScope; default: master.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Fetch and check each file of a locked model, then check the folder.

    Config and weight index must match the lock before weights are fetched. Safe to interrupt and
    to repeat: correct files are not fetched again.
    """
    from reprise.flows.models import ModelRequest, Origin, fetch_locked_model

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
        str | None, typer.Option("--lock", help="Model in the lock to compare with.")
    ] = None,
    hostfile: Annotated[
        Path | None, typer.Option(help="Check on every host of this file over SSH instead.")
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="Only these hosts of the hostfile.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Without these hosts of the hostfile.")
    ] = None,
    host: Annotated[list[str] | None, typer.Option(help="Check on this host (repeatable).")] = None,
    ssh_config: Annotated[
        Path | None, typer.Option(help="ssh configuration; default: the site file's.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a folder of weights: index, every shard's header and size, LFS pointers, config.

    Reads no weights. On hosts, the same folder is checked on all of them at the same time, and they
    must agree; a host needs only python3.
    """
    from reprise.flows.models import Where, check_model

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
