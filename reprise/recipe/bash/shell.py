"""What the parts of the interpreter ask of one another, in one place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Protocol

from reprise.recipe.bash.grammar.syntax import Command, Node, Sequence, Substitution, Word
from reprise.recipe.bash.state import Field

__all__ = ["Shell"]


class Shell(Protocol):
    """The whole interpreter as one of its parts sees it.

    Python refuses to make an interpreter in which one of these is missing.
    """

    @abstractmethod
    def substitute(self, part: Substitution) -> str:
        """What $(…) prints."""

    @abstractmethod
    def text(self, word: Word) -> str:
        """A word without splitting."""

    @abstractmethod
    def pieces(self, word: Word) -> list[tuple[str, bool]]:
        """The texts of a word, and whether each is quoted."""

    @abstractmethod
    def fields(self, words: list[Word]) -> list[Field]:
        """The words of a command after every expansion."""

    @abstractmethod
    def run(self, node: Node) -> int | None:
        """Run a command of the tree."""

    @abstractmethod
    def source(self, text: str, first_row: int = 1) -> int | None:
        """Run the text of a script."""

    @abstractmethod
    def sequence(self, node: Sequence) -> int | None:
        """Run commands one after another."""

    @abstractmethod
    def subshell(self, what: Callable[[], int | None]) -> int | None:
        """Run in a copy of the state."""

    @abstractmethod
    def ways(self, row: int, source: str, runs: list[Callable[[], int | None]]) -> int | None:
        """Take every one of `runs`, and go on with what they share."""

    @abstractmethod
    def expression(self, word: Word) -> int | str:
        """The value of ((…))."""

    @abstractmethod
    def builtin(self, name: str) -> Callable[[list[Field], Command], int | None] | None:
        """What a builtin of bash does; None for a program."""

    @abstractmethod
    def declare(self, node: Command, name: str) -> int | None:
        """declare, local, export, readonly, with assignments among their words."""
