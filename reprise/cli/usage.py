"""What was typed wrongly, told as one JSON object where `--json` was typed too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from reprise.core.findings import Report

if TYPE_CHECKING:
    import typer

__all__ = ["asks_json", "bad_endpoint", "usage_report"]


def asks_json(arguments: Sequence[str]) -> bool:
    """Is `--json` among the options: what follows a bare `--` are none."""
    arguments = list(arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]


def usage_report(app: typer.Typer, arguments: Sequence[str], error: typer.TyperException) -> Report:
    """The report of a command line that could not be read (exit code 2)."""
    command, is_group = _typed(app, arguments)
    asked = " ".join(("reprise", *command))
    message = error.format_message().strip().replace("\n", " ")
    if is_group and getattr(error, "option_name", "") == "--json":
        message = "expected a command before --json"
    report = Report(" ".join(command) or "reprise")
    lists = "lists the commands" if is_group else "says what it takes"
    report.unknown("usage", asked, message, f"{asked} --help {lists}")
    return report


def bad_endpoint() -> Report | None:
    """The report of a HF_ENDPOINT that is no URL; None when it may be one."""
    try:
        _ = urlsplit(os.environ.get("HF_ENDPOINT", "")).port
    except ValueError as error:
        report = Report("reprise")
        message = f"is no URL: {error}"
        report.failed("environment", "HF_ENDPOINT", message, "correct it, or leave it unset")
        return report
    return None


def _typed(app: typer.Typer, arguments: Sequence[str]) -> tuple[list[str], bool]:
    """The words that name a command or a group of them, and whether it is a group."""
    from typer.main import get_command

    here = get_command(app)
    words = []
    for word in arguments:
        found = getattr(here, "commands", {}).get(word)
        if found is None:
            break
        words.append(word)
        here = found
    return words, hasattr(here, "commands")
