"""The parts of a bash script, as the parser finds them."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "AndOr",
    "Arith",
    "ArithCommand",
    "Array",
    "Assign",
    "BashError",
    "Brackets",
    "CFor",
    "Case",
    "Clause",
    "Command",
    "For",
    "Function",
    "Group",
    "If",
    "Lit",
    "Node",
    "Param",
    "Part",
    "Pipeline",
    "Process",
    "Redirect",
    "Sequence",
    "Subshell",
    "Substitution",
    "While",
    "Word",
]


class BashError(Exception):
    """bash does not accept the text; `row` is the line."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.message = message
        self.row = row


@dataclass(slots=True)
class Lit:
    """Literal text; `quoted` when bash neither splits nor expands it."""

    text: str
    quoted: bool = False


@dataclass(slots=True)
class Param:
    """$NAME or ${…}. `operator` is the text between name and argument (':-', '##', '/', …).

    `index` is what is between brackets, `prefix` '!' or '#'.
    """

    name: str
    quoted: bool
    row: int
    source: str
    operator: str = ""
    argument: Word | None = None
    second: Word | None = None
    index: Word | None = None
    prefix: str = ""


@dataclass(slots=True)
class Substitution:
    """$(…) or `…`."""

    source: str
    row: int
    quoted: bool


@dataclass(slots=True)
class Arith:
    """$((…)): the text between the parentheses as a word, since bash expands it first."""

    word: Word
    quoted: bool
    row: int
    source: str


@dataclass(slots=True)
class Process:
    """<(…) or >(…)."""

    source: str
    row: int
    quoted: bool = False


Part = Lit | Param | Substitution | Arith | Process


@dataclass(slots=True)
class Word:
    """One word of the source. `row` is its line, `source` its text."""

    parts: list[Part]
    row: int
    source: str = ""

    @property
    def plain(self) -> str | None:
        """The text of a word that is one unquoted literal: what a reserved word must be."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Lit) and not self.parts[0].quoted:
            return self.parts[0].text
        return None

    def fixed(self) -> str:
        """The literal text of the word; '' where it has an expansion."""
        if all(isinstance(part, Lit) for part in self.parts):
            return "".join(part.text for part in self.parts if isinstance(part, Lit))
        return ""

    @staticmethod
    def literal(text: str, row: int) -> Word:
        """A word of literal text."""
        return Word([Lit(text, True)], row, text)


@dataclass(slots=True)
class Array:
    """(a b [k]=c) after an equals sign: pairs of index (or None) and word."""

    items: list[tuple[Word | None, Word]]


@dataclass(slots=True)
class Assign:
    """NAME=value, NAME+=value, NAME[index]=value."""

    name: str
    value: Word | Array
    row: int
    append: bool = False
    index: Word | None = None


@dataclass(slots=True)
class Redirect:
    """One redirection. `target` is the file, or the text of a heredoc or a here-string."""

    operator: str
    row: int
    target: Word | None = None
    descriptor: str = ""


@dataclass(slots=True)
class Command:
    """A simple command."""

    assigns: list[Assign]
    words: list[Word | Assign]
    redirects: list[Redirect]
    row: int
    end_row: int = 0


@dataclass(slots=True)
class Pipeline:
    """Commands joined by |; `negated` with !."""

    commands: list[Node]
    row: int
    negated: bool = False


@dataclass(slots=True)
class AndOr:
    """The first command, then (&& or ||, command) pairs."""

    first: Node
    rest: list[tuple[str, Node]]
    row: int


@dataclass(slots=True)
class Sequence:
    """Commands one after another; a True beside one says that & ends it."""

    items: list[tuple[Node, bool]]


@dataclass(slots=True)
class Clause:
    """A condition and what is done then."""

    condition: Sequence
    body: Sequence
    row: int
    source: str


@dataclass(slots=True)
class If:
    """if … elif … else … fi."""

    clauses: list[Clause]
    otherwise: Sequence | None
    row: int
    redirects: list[Redirect] = field(default_factory=list)


@dataclass(slots=True)
class While:
    """while or until."""

    condition: Sequence
    body: Sequence
    until: bool
    row: int
    source: str
    redirects: list[Redirect] = field(default_factory=list)


@dataclass(slots=True)
class For:
    """for NAME in words; `words` None means "$@"."""

    name: str
    words: list[Word] | None
    body: Sequence
    row: int
    redirects: list[Redirect] = field(default_factory=list)


@dataclass(slots=True)
class CFor:
    """for ((first; condition; step))."""

    parts: tuple[Word, Word, Word]
    body: Sequence
    row: int
    redirects: list[Redirect] = field(default_factory=list)


@dataclass(slots=True)
class Case:
    """Items are (patterns, body, the operator that ends it: ;; ;& or ;;&)."""

    word: Word
    items: list[tuple[list[Word], Sequence, str]]
    row: int
    redirects: list[Redirect] = field(default_factory=list)


@dataclass(slots=True)
class Group:
    """{ …; }."""

    body: Sequence
    row: int
    redirects: list[Redirect] = field(default_factory=list)


@dataclass(slots=True)
class Subshell:
    """(…)."""

    body: Sequence
    row: int
    redirects: list[Redirect] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """NAME() …"""

    name: str
    body: Node
    row: int


@dataclass(slots=True)
class ArithCommand:
    """((…))."""

    word: Word
    row: int
    redirects: list[Redirect] = field(default_factory=list)


@dataclass(slots=True)
class Brackets:
    """[[ … ]]: the tokens between, words or operators (as text)."""

    tokens: list[Word | str]
    row: int
    source: str
    redirects: list[Redirect] = field(default_factory=list)


Node = (
    Command
    | Pipeline
    | AndOr
    | Sequence
    | If
    | While
    | For
    | CFor
    | Case
    | Group
    | Subshell
    | Function
    | ArithCommand
    | Brackets
)
