"""Arguments in, a report out: every command parses, calls one function and prints.

What all commands share is here, the commands are in `commands`.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from reprise import __version__
from reprise.cli.interrupts import hear_interrupts

if TYPE_CHECKING:
    import typer

__all__ = ["app", "main"]

# Each module adds its commands to `app` in a function `register`, in the order of the help.
_GROUPS = (
    *("lock", "setup", "bundle", "data", "model", "recipe", "cluster", "train", "reproduce"),
    *("rehearsal", "runs", "triage", "checkpoint", "curves", "image", "ci", "explain"),
)
# Those that may ask the Hugging Face Hub.
_HUB = frozenset({"lock", "setup", "bundle", "data", "model"})
# Commands whose module has another name.
_MODULES = {
    **dict.fromkeys(("status", "logs", "stop"), "runs"),
    **dict.fromkeys(("init", "hosts", "doctor"), "cluster"),
    "baseline": "reproduce",
    "new": "recipe",
    **dict.fromkeys(("compare", "reference", "report"), "curves"),
    "support-bundle": "triage",
}


@functools.cache
def _build(groups: tuple[str, ...] = _GROUPS) -> typer.Typer:
    """The application with the commands of `groups`."""
    # Not before `main` can handle an interrupt: this import takes a while.
    import typer

    made = typer.Typer(
        name="reprise",
        help="From pinned commits to a judged training curve.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    def show_version(asked: bool) -> None:
        if asked:
            typer.echo(f"reprise {__version__}")
            raise typer.Exit

    @made.callback()
    def root(
        version: bool = typer.Option(
            False, "--version", help="Show the version.", callback=show_version, is_eager=True
        ),
    ) -> None:
        """From pinned commits to a judged training curve."""

    for group in groups:
        importlib.import_module(f"reprise.cli.commands.{group}").register(made)
    return made


def _names_only() -> typer.Typer:
    """The application's commands by name alone: enough to complete the first word."""
    import typer

    made = typer.Typer(name="reprise")
    for name in sorted({*_GROUPS, *_MODULES}):
        made.command(name)(lambda: None)
    return made


def _completed() -> list[str] | None:
    """The words that a shell asks to complete, the program's name first; None when none does."""
    if "_REPRISE_COMPLETE" not in os.environ:
        return None
    return os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()


def __getattr__(name: str) -> typer.Typer:
    """`app`, the application with every command, made when it is first asked for."""
    if name == "app":
        return _build()
    raise AttributeError(name)


def main() -> None:
    """Entry point of the `reprise` command."""
    # Only what the command needs: all groups together import for seconds (SciPy, Ray, charts).
    words = _completed()
    command = next(iter(sys.argv[1:] if words is None else words[1:]), "")
    wanted = tuple(group for group in _GROUPS if group == _MODULES.get(command, command))
    # A config is tens of thousands of objects that live on: looking for garbage among them every
    # 700 allocations takes a tenth of a short command's time.
    gc.set_threshold(50_000, 20, 20)
    try:
        hear_interrupts()
        _show_any_text()
        if words is not None and not wanted:
            _names_only()(prog_name="reprise")
        _run(wanted or _GROUPS)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        _unheard(error)


def _run(groups: tuple[str, ...]) -> None:
    import typer

    from reprise.cli.render import finish
    from reprise.cli.usage import asks_json, bad_endpoint, usage_report

    arguments = sys.argv[1:]
    as_json = asks_json(arguments)
    try:
        # huggingface_hub reads it when it is imported, and prints what is wrong, not where.
        if set(groups) <= _HUB and (report := bad_endpoint()) is not None:
            finish(report, as_json)
        app = _build(groups)
        if not as_json:
            app()
            return
        try:
            sys.exit(app(standalone_mode=False))
        except typer.TyperException as error:
            finish(usage_report(app, arguments, error), as_json=True)
    except typer.Exit as end:
        sys.exit(end.exit_code)


def _show_any_text() -> None:
    """Print characters that the stream cannot encode (LC_ALL=C, odd file names) as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _unheard(error: OSError) -> NoReturn:
    """Commands report their own errors: an error that arrives here prevented the printing."""
    said = f"error standard output: the answer could not be written: {error.strerror}\n"
    with contextlib.suppress(OSError):  # the same terminal may be gone
        sys.stderr.write(said)
    # Buffered output would fail again when the interpreter ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(2)
