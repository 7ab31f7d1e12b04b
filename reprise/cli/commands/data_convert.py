"""`reprise data convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprise.cli.bars import showing
from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.errors import OperatorError
from reprise.core.findings import Report, Verdict

__all__ = ["convert"]


@guard("data convert")
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help=".jsonl, .json, .csv, .parquet")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help=".parquet or .jsonl")],
    mapping: Annotated[Path | None, typer.Option(help="YAML file with these options.")] = None,
    question: Annotated[str | None, typer.Option(help="Column of the question.")] = None,
    answer: Annotated[str | None, typer.Option(help="Column of the answer or solution.")] = None,
    messages: Annotated[str | None, typer.Option(help="Column of chat messages.")] = None,
    data_source: Annotated[str | None, typer.Option(help="Name that selects the scorer.")] = None,
    ability: Annotated[str | None, typer.Option(help="Value of the field ability.")] = None,
    template: Annotated[
        str | None,
        typer.Option(help="plain, answer-line, gsm8k, boxed, @FILE or a text with {question}."),
    ] = None,
    system: Annotated[str | None, typer.Option(help="System message before each prompt.")] = None,
    extract: Annotated[
        str | None, typer.Option(help="Form of the answer: auto, gsm8k, boxed, raw.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Value of extra_info.split.")] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Rename a role, for example human=user."),
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out.")] = None,
    without: Annotated[
        list[Path] | None, typer.Option(help="Leave out the prompts of this file.")
    ] = None,
    unique: Annotated[
        bool, typer.Option("--unique", help="Keep the first of equal prompts and answers.")
    ] = False,
    drop_rejected: Annotated[
        bool,
        typer.Option("--drop-rejected", help="Continue without rows that cannot be converted."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Convert questions and answers, chats or similar rows to the five fields of verl.

    The same input gives the same bytes. All changes and rejected rows are reported.
    """
    from reprise.data.convert.convert import Choices
    from reprise.data.convert.convert import convert as convert_file
    from reprise.data.convert.mapping import ColumnMap, read_mapping

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
        report = convert_file(
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
        raise OperatorError("data-mapping.plain", "--role", wrong=wrong[0])
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
