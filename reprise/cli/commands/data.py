"""`reprise data fetch | check | convert | describe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from reprise.cli.bars import showing
from reprise.cli.commands.data_convert import convert
from reprise.cli.options import EndpointOption, OverridesFileOption, VerlOption
from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.errors import OperatorError
from reprise.core.project import find_project

__all__ = ["register"]

group = typer.Typer(help="Training data: locked files and your own.", no_args_is_help=True)

Files = Annotated[list[Path] | None, typer.Argument(help="Training files (.parquet, .jsonl).")]
ValOption = Annotated[list[Path] | None, typer.Option("--val", help="Validation file.")]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="Recipe whose files, sizes and limits apply.")
]
OverrideOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of verl.")
]
TokenizerOption = Annotated[
    Path | None, typer.Option("--tokenizer", help="Model folder whose tokenizer counts lengths.")
]


def register(app: typer.Typer) -> None:
    """Add the command group to `app`."""
    group.command()(convert)
    app.add_typer(group, name="data")


@group.command()
@guard("data fetch")
def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data entries of the lock; default: all.")
    ] = None,
    mirror: EndpointOption = None,
    local: Annotated[
        Path | None, typer.Option("--from", help="File or folder to copy the files from.")
    ] = None,
    deep: Annotated[bool, typer.Option(help="Hash files again that are already in place.")] = False,
    replace: Annotated[bool, typer.Option(help="Replace a file whose bytes differ.")] = False,
    check: Annotated[bool, typer.Option(help="Check newly installed files.")] = True,
    as_json: JsonFlag = False,
) -> None:
    """Fetch the locked data files and check their sha256.

    They are installed below DATA_DIR (default: the project's root). Safe to interrupt and repeat.
    With TRAIN_FILES or VAL_FILES set, those files are checked and the locked ones are not fetched.
    """
    from reprise.flows.data import FetchRequest, fetch_data

    with showing() as (bars, say):
        request = FetchRequest(tuple(names or ()), mirror, local, deep, replace, check)
        report = fetch_data(find_project(), request, bars, say)
    if not as_json:
        for item in report.data["files"]:
            typer.echo(
                f"{item['name']}: {item['how']}, {item['bytes']:,} bytes, {item['file']} "
                f"({item['seconds']:.1f} s)"
            )
    finish(report, as_json)


@group.command()
@guard("data check")
def check(
    files: Files = None,
    val: ValOption = None,
    model: ModelOption = None,
    override: OverrideOption = None,
    overrides: OverridesFileOption = None,
    tokenizer: TokenizerOption = None,
    verl: VerlOption = None,
    datasets: Annotated[
        str | None, typer.Option(help="Version of the datasets package in the image.")
    ] = None,
    reward: Annotated[
        bool, typer.Option("--reward", help="Also run the recipe's scorer on synthetic answers.")
    ] = False,
    python: Annotated[
        Path | None, typer.Option(help="Interpreter with verl; default: the rehearsal's.")
    ] = None,
    reward_rows: Annotated[int, typer.Option(min=1, help="Rows to score.")] = 500,
    step_seconds: Annotated[
        float, typer.Option(min=0.001, help="Time of a training step in seconds.")
    ] = 60.0,
    as_json: JsonFlag = False,
) -> None:
    """Check data files: all problems in one pass, with row numbers.

    Without files, checks those of the recipe or of the overrides.
    """
    from reprise.flows.data_check import CheckRequest, RewardRequest, check_data

    lines = _lines(override, overrides)
    scoring = RewardRequest(python, reward_rows, step_seconds) if reward else None
    request = CheckRequest(
        tuple(files or ()), tuple(val or ()), model, lines, tokenizer, verl, datasets, scoring
    )
    with showing() as (bars, say):
        report = check_data(find_project(), request, bars, say)
    finish(report, as_json)


def _lines(override: list[str] | None, file: Path | None) -> tuple[str, ...]:
    """The overrides of a file, then those of the command line, which take precedence."""
    if file is None:
        return tuple(override or ())
    try:
        return (*file.read_text(encoding="utf-8").splitlines(), *(override or ()))
    except UnicodeDecodeError:
        raise OperatorError("data-settings.text-file", str(file)) from None


@group.command()
@guard("data describe")
def describe(
    files: Files = None,
    val: ValOption = None,
    model: ModelOption = None,
    override: OverrideOption = None,
    overrides: OverridesFileOption = None,
    tokenizer: TokenizerOption = None,
    verl: VerlOption = None,
    samples: Annotated[int, typer.Option(min=0, help="Prompts to show.")] = 3,
    as_json: JsonFlag = False,
) -> None:
    """Show the contents of data files: rows, prompts, sources, lengths, answers, steps, samples."""
    from reprise.flows.data_check import CheckRequest, describe_data

    lines = _lines(override, overrides)
    request = CheckRequest(tuple(files or ()), tuple(val or ()), model, lines, tokenizer, verl)
    with showing() as (bars, say):
        report = describe_data(find_project(), request, samples, bars, say)
    if not as_json:
        for item in report.data["files"]:
            _print_description(item)
    finish(report, as_json, quiet_ok=True)


def _print_description(item: dict[str, Any]) -> None:
    table = Table(title=item["file"], show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    repeats = f"{item['repeats']['least']} to {item['repeats']['most']}"
    lengths = item["lengths"]
    for name, value in (
        ("rows", f"{item['rows']:,}"),
        ("unique prompts", f"{item['unique_prompts']:,} (each {repeats} times)"),
        ("unique prompt and answer", f"{item['unique_pairs']:,}"),
        ("unique extra_info.index", f"{item['unique_indices']:,}"),
        ("prompts with several answers", f"{item['conflicting_prompts']:,}"),
        ("data sources", _counts(item["sources"])),
        ("roles", _counts(item["roles"])),
        ("answers", _counts(item["answers"])),
        ("prompt length", f"{lengths['least']} to {lengths['most']}, median {lengths['median']}"),
        (lengths["how"], _counts(lengths["histogram"])),
        ("steps per epoch", _steps(item)),
    ):
        table.add_row(name, value)
    for sample in item["samples"]:
        table.add_row(f"row {sample['row']}", f"{sample['prompt']} => {sample['answer']}")
    Console(highlight=False, markup=False).print(table)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in counts.items()) or "none"


def _steps(item: dict[str, Any]) -> str:
    if item["batch"] is None:
        return "unknown (set --model, or --set data.train_batch_size=N)"
    return (
        f"{item['steps_per_epoch']:,} at batch {item['batch']}, "
        f"{item['steps_per_epoch_unique']:,} without repeats"
    )
