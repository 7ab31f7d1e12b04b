"""`reprise data fetch | check | convert | describe`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from reprise.cli.render import JsonFlag, finish, guard
from reprise.data.convert import Choices, convert
from reprise.data.mapping import ColumnMap, read_mapping
from reprise.errors import OperatorError
from reprise.findings import Report, Verdict
from reprise.pipeline_data import (
    CheckRequest,
    FetchRequest,
    RewardRequest,
    check_data,
    describe_data,
    fetch_data,
)
from reprise.progress import Display, Task
from reprise.project import find_project

__all__ = ["Bars", "register", "showing"]

group = typer.Typer(help="Locked and own training data.", no_args_is_help=True)

Files = Annotated[list[Path] | None, typer.Argument(help="Training files (.parquet, .jsonl).")]
ValOption = Annotated[list[Path] | None, typer.Option("--val", help="Validation file.")]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="Recipe whose files, sizes and limits count.")
]
OverrideOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override of a verl key.")
]
OverridesFile = Annotated[
    Path | None, typer.Option("--overrides", help="File with one override a line.")
]
TokenizerOption = Annotated[
    Path | None, typer.Option("--tokenizer", help="Model folder whose tokenizer counts lengths.")
]
VerlOption = Annotated[
    Path | None, typer.Option("--verl", help="verl's source, when it lies elsewhere.")
]


def register(app: typer.Typer) -> None:
    """Add the command group to `app`."""
    app.add_typer(group, name="data")


class Bars:
    """One bar or line for each title that reports progress."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._tasks: dict[str, Task] = {}

    def __call__(self, title: str, count: int, total: int | None) -> None:
        """Say that `count` more of `title` is done."""
        if title not in self._tasks:
            unit = "bytes" if title.startswith("fetch") else "rows"
            self._tasks[title] = self._display.task(title, total, unit)
        self._tasks[title].advance(count)

    def end(self) -> None:
        """Close all of them."""
        for task in self._tasks.values():
            task.end()


@contextmanager
def showing() -> Iterator[tuple[Bars, Callable[[str], None]]]:
    """Progress for as long as the block runs, and a way to print a line above it."""
    with Display() as display:
        bars = Bars(display)
        yield bars, display.line
        bars.end()


@group.command()
@guard("data fetch")
def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data entries of the lock; default: all.")
    ] = None,
    mirror: Annotated[
        str | None, typer.Option(help="Endpoint in the place of HF_ENDPOINT and the public hub.")
    ] = None,
    local: Annotated[
        Path | None, typer.Option("--from", help="File or folder to take them from.")
    ] = None,
    deep: Annotated[bool, typer.Option(help="Hash again what is already in place.")] = False,
    replace: Annotated[bool, typer.Option(help="Replace a file of other bytes.")] = False,
    check: Annotated[bool, typer.Option(help="Check what was newly placed.")] = True,
    as_json: JsonFlag = False,
) -> None:
    """Bring the locked data files into place, checked against their sha256.

    They are put below DATA_DIR (default: the project's root). Safe to interrupt and to repeat.
    With TRAIN_FILES or VAL_FILES set, those files are checked and the locked ones not fetched.
    """
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
    overrides: OverridesFile = None,
    tokenizer: TokenizerOption = None,
    verl: VerlOption = None,
    datasets: Annotated[
        str | None, typer.Option(help="Version of the datasets package in the image.")
    ] = None,
    reward: Annotated[
        bool, typer.Option("--reward", help="Also try the recipe's scorer on made-up answers.")
    ] = False,
    python: Annotated[
        Path | None, typer.Option(help="Interpreter that has verl; default: the rehearsal's.")
    ] = None,
    reward_rows: Annotated[int, typer.Option(min=1, help="Rows to score.")] = 500,
    step_seconds: Annotated[
        float, typer.Option(min=0.001, help="How long a training step takes.")
    ] = 60.0,
    as_json: JsonFlag = False,
) -> None:
    """Check data files: every problem in one pass, with row numbers.

    Without files, those that the recipe or the overrides name.
    """
    lines = _lines(override, overrides)
    scoring = RewardRequest(python, reward_rows, step_seconds) if reward else None
    request = CheckRequest(
        tuple(files or ()), tuple(val or ()), model, lines, tokenizer, verl, datasets, scoring
    )
    with showing() as (bars, say):
        report = check_data(find_project(), request, bars, say)
    finish(report, as_json)


def _lines(override: list[str] | None, file: Path | None) -> tuple[str, ...]:
    """The overrides of a file, then those of the command line, which count more."""
    if file is None:
        return tuple(override or ())
    try:
        return (*file.read_text(encoding="utf-8").splitlines(), *(override or ()))
    except UnicodeDecodeError:
        raise OperatorError("data-settings", str(file), "no text file", "give a text") from None


@group.command()
@guard("data describe")
def describe(
    files: Files = None,
    val: ValOption = None,
    model: ModelOption = None,
    override: OverrideOption = None,
    overrides: OverridesFile = None,
    tokenizer: TokenizerOption = None,
    verl: VerlOption = None,
    samples: Annotated[int, typer.Option(min=0, help="Prompts to show.")] = 3,
    as_json: JsonFlag = False,
) -> None:
    """Tell what data files hold: rows, prompts, sources, lengths, answers, steps, samples."""
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
        ("steps an epoch", _steps(item)),
    ):
        table.add_row(name, value)
    for sample in item["samples"]:
        table.add_row(f"row {sample['row']}", f"{sample['prompt']} => {sample['answer']}")
    Console(highlight=False, markup=False).print(table)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in counts.items()) or "none"


def _steps(item: dict[str, Any]) -> str:
    if item["batch"] is None:
        return "not known (give --model, or --set data.train_batch_size=N)"
    return (
        f"{item['steps_per_epoch']:,} at batch {item['batch']}, "
        f"{item['steps_per_epoch_unique']:,} with each prompt and answer once"
    )


@group.command("convert")
@guard("data convert")
def convert_command(
    source: Annotated[Path, typer.Argument(metavar="IN", help=".jsonl, .json, .csv, .parquet")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help=".parquet or .jsonl")],
    mapping: Annotated[Path | None, typer.Option(help="YAML file with these options.")] = None,
    question: Annotated[str | None, typer.Option(help="Column of the question.")] = None,
    answer: Annotated[str | None, typer.Option(help="Column of the answer or solution.")] = None,
    messages: Annotated[str | None, typer.Option(help="Column of chat messages.")] = None,
    data_source: Annotated[str | None, typer.Option(help="Name that chooses the scorer.")] = None,
    ability: Annotated[str | None, typer.Option(help="Value of the field ability.")] = None,
    template: Annotated[
        str | None,
        typer.Option(help="plain, answer-line, gsm8k, boxed, @FILE or a text with {question}."),
    ] = None,
    system: Annotated[str | None, typer.Option(help="System message before each prompt.")] = None,
    extract: Annotated[
        str | None, typer.Option(help="Where the answer stands: auto, gsm8k, boxed, raw.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Value of extra_info.split.")] = None,
    role: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="Rename a role, as human=user.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out.")] = None,
    without: Annotated[
        list[Path] | None, typer.Option(help="Leave out the prompts of this file.")
    ] = None,
    unique: Annotated[
        bool, typer.Option("--unique", help="Keep the first of equal prompts and answers.")
    ] = False,
    drop_rejected: Annotated[
        bool, typer.Option("--drop-rejected", help="Go on without rows that cannot be converted.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a file of questions and answers, chats or near five-field rows as five-field rows.

    The same input gives the same bytes. What is changed and what is rejected is told.
    """
    columns = (read_mapping(mapping) if mapping else ColumnMap()).but(
        question=question,
        answer=answer,
        messages=messages,
        data_source=data_source,
        ability=ability,
        template=template,
        system=system,
        extract=extract,
        split=split,
        roles=_roles(role),
        drop=tuple(drop) if drop else None,
    )
    choices = Choices(columns, unique, tuple(without or ()), drop_rejected, force)
    with showing() as (bars, _):
        title = f"convert {source.name}"
        report = convert(
            "data convert", source, target, choices, lambda count: bars(title, count, None)
        )
    if not as_json:
        _print_conversion(report)
    finish(report, as_json)


def _roles(pairs: list[str] | None) -> dict[str, str] | None:
    if not pairs:
        return None
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise OperatorError("data-mapping", "--role", f"{wrong[0]!r}", "--role OLD=NEW")
    return dict(pair.split("=", 1) for pair in pairs)


def _print_conversion(report: Report) -> None:
    data = report.data
    if report.verdict is Verdict.PROBLEM:
        typer.echo(f"{data['rows_read']:,} rows read, nothing written")
    else:
        typer.echo(
            f"{data['rows_read']:,} rows read, {data['rows_written']:,} written to "
            f"{data['output']} (sha256 {data['sha256']})"
        )
