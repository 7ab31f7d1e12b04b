"""Arguments and options that several commands take: declared once, so that they mean the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprise.rehearsal.shapes import ARCHITECTURES, DEFAULT_ARCH

__all__ = [
    "AcceptOption",
    "AlgorithmOption",
    "AnyRunArgument",
    "AnyRunsArgument",
    "ArchOption",
    "EndpointOption",
    "EngineOption",
    "EntriesArgument",
    "LayoutOption",
    "MarginOption",
    "MirrorOption",
    "ModelArgument",
    "NoWaitOption",
    "OutOption",
    "OverridesArgument",
    "OverridesFileOption",
    "PlatformOption",
    "RolloutOption",
    "SeriesOption",
    "VerlOption",
]

# A recipe, and what it is composed of.
ModelArgument = Annotated[str, typer.Argument(help="Recipe, as `reprise recipe list` names it.")]
OverridesArgument = Annotated[list[str] | None, typer.Argument(help="Hydra overrides, after --.")]
OverridesFileOption = Annotated[
    Path | None, typer.Option("--overrides", help="File with one override per line.")
]
AlgorithmOption = Annotated[
    str,
    typer.Option("--algo", help="Algorithm, a file of recipes/algorithms; default: the recipe's."),
]
VerlOption = Annotated[
    Path | None,
    typer.Option("--verl", help="Folder with verl's source, instead of the locked one."),
]

# Where and when it runs.
_OTHERS = ", ".join(name for name in ARCHITECTURES if name != DEFAULT_ARCH)
PlatformOption = Annotated[
    str, typer.Option(help="Platform of the rehearsal: cpu (default) or gpu.")
]
EngineOption = Annotated[
    str, typer.Option(help="Training engine: fsdp (default), or megatron (on a GPU; docs/gpu.md).")
]
RolloutOption = Annotated[
    str, typer.Option(help="Rollout engine: vllm (default), or sglang (on a GPU; docs/gpu.md).")
]
ArchOption = Annotated[
    str,
    typer.Option(help=f"Tiny model of this shape: {DEFAULT_ARCH} (default), {_OTHERS}."),
]
LayoutOption = Annotated[
    str,
    typer.Option(
        help="Parallel sizes on several GPUs, with megatron: two, pp2, ep2, tp2, cp2, rollout_tp2, "
        "or one for four GPUs (docs/gpu.md); default: one GPU."
    ),
]
NoWaitOption = Annotated[
    bool, typer.Option("--no-wait", help="Refuse while another run trains on this machine.")
]

# Runs of any origin, and how they are judged.
AnyRunArgument = Annotated[
    Path, typer.Argument(help="Run folder or its id, a metrics file, or a folder of files.")
]
AnyRunsArgument = Annotated[
    list[Path],
    typer.Argument(help="Run folders or ids, metrics files, folders of files: one run each."),
]
MarginOption = Annotated[
    float | None,
    typer.Option(min=1e-9, help="Drop of reward and validation that a PASS must exclude."),
]
AcceptOption = Annotated[
    list[str] | None,
    typer.Option(help="Accept a difference or an unanswered guard by its name (repeatable)."),
]
SeriesOption = Annotated[
    str | None, typer.Option(help="Run to read, where the file has several.", metavar="NAME")
]
OutOption = Annotated[
    Path | None,
    typer.Option(help="Write verdict.json, curves.png and report.html into this folder."),
]

# Entries of the lock, and where their bytes come from.
EntriesArgument = Annotated[
    list[str] | None, typer.Argument(help="Entries of the lock; default: the machine's.")
]
EndpointOption = Annotated[
    str | None,
    typer.Option("--mirror", help="Endpoint instead of HF_ENDPOINT and the public hub."),
]
MirrorOption = Annotated[
    list[str] | None,
    typer.Option(help="URL to fetch from instead of https://github.com/, or BASE=URL."),
]
