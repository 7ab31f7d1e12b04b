"""Write docs/cli.md from the help of every command; with --check only compare (exit code 1)."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.main import get_command

from reprise.cli import app

TARGET = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
WIDTH = 96
HEAD = """# Command line

Written by `make docs` from each command's `--help`; `make test` fails when it is out of date.
Exit codes: 0 fine, 1 something is wrong, 2 could not find out (or wrong usage).
Every command that reports takes `--json`: one object on standard output and nothing else there.
"""


def sections(
    command: typer.core.TyperCommand | typer.core.TyperGroup, context: typer.Context
) -> Iterator[str]:
    """The Markdown section of a command, then those of its sub-commands in their order."""
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
    if not isinstance(command, typer.core.TyperGroup):
        return
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        if child is None or child.hidden:
            continue
        inner = type(context)(
            child, info_name=name, parent=context, terminal_width=WIDTH, max_content_width=WIDTH
        )
        yield from sections(child, inner)  # type: ignore[arg-type]


def reference() -> str:
    """The whole document."""
    root = get_command(app)
    context = root.make_context(
        "reprise",
        [],
        resilient_parsing=True,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
    )
    return HEAD + "\n" + "\n".join(sections(root, context))  # type: ignore[arg-type]


def main() -> None:
    """Write the file, or compare it."""
    text = reference()
    if sys.argv[1:] != ["--check"]:
        TARGET.parent.mkdir(exist_ok=True)
        TARGET.write_text(text)
        return
    found = TARGET.read_text(encoding="utf-8") if TARGET.exists() else ""
    if found != text:
        sys.stdout.writelines(
            difflib.unified_diff(
                found.splitlines(True), text.splitlines(True), str(TARGET), "the commands' help"
            )
        )
        sys.exit("docs/cli.md is out of date: run `make docs` and commit it")


if __name__ == "__main__":
    main()
