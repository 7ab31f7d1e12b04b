"""Read a script's text: the programs that it would start, and what is unknown of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from reprise.recipe.bash.interpreter import Interpreter
from reprise.recipe.bash.run import Run, TooMuch
from reprise.recipe.bash.unknown import Unknowns

__all__ = ["Reading", "read_text"]

# Python's own calls need no stack of C; the limit is raised so that a thousand nested ifs fit.
_RECURSION = 200_000


@dataclass(slots=True)
class Reading:
    """What a script would start. Rows are lines of the script, from 1.

    `broken` are (line, what bash would report); `comments` the lines of comments; `assumed` the
    variables of the caller that a condition or default takes as unset, with the line; `not_read`
    the other scripts that it runs and that are not at hand. `too_much` is why it was not read to
    its end, '' where it was. `loops` is set where a loop was left before its end.
    """

    runs: list[Run] = field(default_factory=list)
    unknowns: Unknowns = field(default_factory=Unknowns)
    broken: list[tuple[int, str]] = field(default_factory=list)
    comments: list[int] = field(default_factory=list)
    assumed: dict[str, int] = field(default_factory=dict)
    not_read: dict[str, int] = field(default_factory=dict)
    too_much: str = ""
    loops: bool = False

    def shown(self, text: str) -> str:
        """A text with its unknown parts as <name>."""
        return self.unknowns.shown(text)


@contextmanager
def _deep() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def read_text(
    text: str, path: Path, supplied: Mapping[str, str] | None = None, strict: bool = False
) -> Reading:
    """Read the text of the script at `path`; nothing in it is executed.

    `supplied` are variables of the caller. With `strict`, conditions take nothing of the caller as
    unset: its arguments and variables leave both ways open.
    """
    interpreter = Interpreter(str(path.absolute()), dict(supplied or {}), strict)
    interpreter.state.arguments = None if strict else []
    too_much = ""
    with _deep():
        try:
            interpreter.source(text)
        except TooMuch:
            too_much = "its loops, its texts or its nesting go beyond what is read"
        except RecursionError:
            too_much = "it is nested too deeply to be read"
        except (ValueError, OverflowError):
            too_much = "it has a number that is too long to be read"
    return Reading(
        interpreter.runs,
        interpreter.unknowns,
        interpreter.broken,
        sorted(set(interpreter.comments)),
        interpreter.assumed,
        interpreter.not_read,
        too_much,
    )
