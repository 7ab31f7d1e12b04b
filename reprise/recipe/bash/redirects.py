"""Redirections: what a command reads, and the files that a script writes for itself."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from pathlib import Path

from reprise.recipe.bash.expansion import Expansion
from reprise.recipe.bash.grammar.syntax import Redirect
from reprise.recipe.bash.run import Run
from reprise.recipe.bash.unknown import Unknown, has_unknown

__all__ = ["Redirects"]

_MOST_BYTES = 1 << 20


class Redirects(Expansion):
    """The reader's input and output, and what it records."""

    def __init__(self, path: str, supplied: dict[str, str], strict: bool) -> None:
        super().__init__(path, supplied, strict)
        self.out: list[str] | None = None
        self.stdin: str | None = None
        self.steps = 0
        self.runs: list[Run] = []
        self.branches: list[Unknown] = []
        self.broken: list[tuple[int, str]] = []
        self.comments: list[int] = []
        self.via: tuple[str, ...] = ()
        self.may_end = False
        self.cause = ""
        self.not_read: dict[str, int] = {}

    def write(self, text: str) -> None:
        """Print, where something takes what is printed."""
        if self.out is not None:
            self.out.append(text)

    def text_of(self, text: str, row: int) -> str:
        """Source text as one expanded word."""
        from reprise.recipe.bash.grammar.lexer import Lexer

        word = Lexer(text, row).word()
        return self.text(word) if word is not None else ""

    def redirected(
        self, redirects: Sequence[Redirect], what: Callable[[], int | None]
    ) -> int | None:
        """Run with redirections."""
        if not redirects:
            return what()
        stdin, out = self.stdin, self.out
        target, append, caught = "", False, list[str]()
        for redirect in redirects:
            operator = redirect.operator
            if operator in ("<<", "<<-", "<<<"):
                text = self.text(redirect.target) if redirect.target else ""
                self.stdin = text + ("\n" if operator == "<<<" else "")
            elif operator == "<":
                name = self.text(redirect.target) if redirect.target else ""
                self.stdin = self.file_text(name, redirect.row)
            elif operator in (">", ">>", ">|", "&>", "&>>") and redirect.descriptor in ("", "1"):
                target = self.text(redirect.target) if redirect.target else ""
                append = operator in (">>", "&>>")
                self.out = caught
            elif operator == ">&" and redirect.descriptor in ("", "1"):
                self.out = None if out is None else []
        try:
            return what()
        finally:
            self.stdin, self.out = stdin, out
            if target and target != "/dev/null":
                self.save(target, "".join(caught), append)

    def place(self, name: str) -> str:
        """The absolute path of a file that a script names."""
        return posixpath.normpath(posixpath.join(self.folder(), name))

    def save(self, name: str, text: str, append: bool) -> None:
        """Remember what the script writes into a file."""
        place = self.place(name)
        before = self.state.files.get(place, "") if append else ""
        self.state.files[place] = before + text

    def file_text(self, name: str, row: int) -> str:
        """What a file holds: one that the script wrote, else unknown."""
        found = self.state.files.get(self.place(name))
        return (
            found if found is not None else self.unknown(f"`cat {self.unknowns.shown(name)}`", row)
        )

    def script_text(self, name: str) -> str | None:
        """The text of another script: one that this one wrote, or a file that is there."""
        place = self.place(name)
        if place in self.state.files:
            return self.state.files[place]
        if has_unknown(name):
            return None
        # Scripts of a project are mostly started from its root.
        folders = [Path(self.script_folder()), *Path(self.script_folder()).parents]
        for path in [folder / name for folder in folders]:
            try:
                if path.is_file() and path.stat().st_size <= _MOST_BYTES:
                    return path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError, ValueError):
                continue
        return None
