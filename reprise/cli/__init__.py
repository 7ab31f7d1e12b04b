"""Arguments in, a report out: every command parses, calls one function and prints."""

from __future__ import annotations

import importlib
import signal
from typing import NoReturn

import typer

__all__ = ["app", "main"]

app = typer.Typer(
    name="reprise",
    help="From pinned commits to a judged training curve.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# Each module adds its commands to `app` in a function `register`, in the order of the help.
_GROUPS = ("lock", "setup", "bundle", "data", "model", "recipe", "cluster", "reproduce", "curves")


@app.callback()
def _root() -> None:
    """From pinned commits to a judged training curve."""


for _group in _GROUPS:
    importlib.import_module(f"reprise.cli.{_group}").register(app)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Entry point of the `reprise` command.

    A polite end (`kill`, a closed terminal, a time limit) is treated like Ctrl-C, so that what
    the command started is stopped by it as well.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    app()
