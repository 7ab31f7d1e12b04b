"""Commands of bash: simple and compound ones, redirections, heredocs.

bash reads and runs a script command by command, and so does the reader: `Parser.complete` gives one
complete command at a time, so that what comes before an error in the text is read as bash runs it.
"""

from __future__ import annotations

import re

from reprise.recipe.bash.grammar.lexer import META, Lexer, word_of
from reprise.recipe.bash.grammar.syntax import (
    AndOr,
    ArithCommand,
    Array,
    Assign,
    Command,
    Lit,
    Node,
    Pipeline,
    Redirect,
    Sequence,
    Word,
)

__all__ = ["Parser"]

_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:(\+?)=|(\[))")
_REDIRECT = re.compile(r"(\d+|\{[A-Za-z_]\w*\})?(<<<|<<-|<<|<>|<&|>&|>>|>\||&>>|&>|<|>)")
_RESERVED_END = frozenset(
    ("then", "else", "elif", "fi", "do", "done", "esac", "}", "in")
)  # fmt: skip
_COMPOUND = frozenset(("if", "while", "until", "for", "select", "case", "{", "function", "[["))
DECLARATIONS = frozenset(("declare", "typeset", "local", "export", "readonly"))


class Parser(Lexer):
    """A recursive-descent parser. Raises BashError."""

    def __init__(self, text: str, first_row: int = 1) -> None:
        super().__init__(text, first_row)
        self._heredocs: list[tuple[Redirect, str, bool]] = []

    def complete(self) -> Sequence | None:
        """The next line's commands; None at the end of the text."""
        self._newlines()
        if self.at >= len(self.text):
            return None
        items: list[tuple[Node, bool]] = []
        while True:
            items.append(self._item())
            self.blanks()
            if self.at >= len(self.text) or self._newline():
                return Sequence(items)
            if self.text[self.at] in ")&;|":
                raise self._unexpected()

    def sequence(self, ends: tuple[str, ...]) -> Sequence:
        """Commands up to a reserved word or an operator of `ends`, which is not consumed."""
        items: list[tuple[Node, bool]] = []
        while True:
            self._newlines()
            if self.at >= len(self.text) or self._at_end(ends):
                return Sequence(items)
            items.append(self._item())

    def _at_end(self, ends: tuple[str, ...]) -> bool:
        for end in ends:
            if self.starts(end):
                if end[0] in ");":
                    return True
                after = self.text[self.at + len(end) : self.at + len(end) + 1]
                if not after or after in META:
                    return True
        return False

    def _item(self) -> tuple[Node, bool]:
        node = self._and_or()
        self.blanks()
        if self.starts("&") and not self.starts("&&"):
            self.at += 1
            return node, True
        if self.starts(";") and not self.starts(";;") and not self.starts(";&"):
            self.at += 1
        return node, False

    def _and_or(self) -> Node:
        row = self.row()
        first = self._pipeline()
        rest: list[tuple[str, Node]] = []
        while True:
            self.blanks()
            operator = self.text[self.at : self.at + 2]
            if operator not in ("&&", "||"):
                return AndOr(first, rest, row) if rest else first
            self.at += 2
            self._newlines()
            rest.append((operator, self._pipeline()))

    def _pipeline(self) -> Node:
        self.blanks()
        row, negated = self.row(), False
        while (word := self._peek()) in ("!", "time"):
            self.at += len(word)
            self.blanks()
            if word == "time" and self._peek() == "-p":
                self.at += 2
                self.blanks()
            negated ^= word == "!"
        commands = [self._command()]
        while True:
            self.blanks()
            if not self.starts("|") or self.starts("||"):
                break
            self.at += 2 if self.starts("|&") else 1
            self._newlines()
            commands.append(self._command())
        if len(commands) == 1 and not negated:
            return commands[0]
        return Pipeline(commands, row, negated)

    def _peek(self) -> str:
        """The next characters up to a metacharacter, not consumed."""
        match = re.compile(r"[^ \t\n;&|()<>]+").match(self.text, self.at)
        return match.group() if match else ""

    def _command(self) -> Node:
        self.blanks()
        if self.at >= len(self.text):
            raise self.fail("a command is missing at the end")
        word = self._peek()
        if word in _COMPOUND or self.starts("("):
            from reprise.recipe.bash.compound import compound

            node = compound(self, word)
            return node
        if word in _RESERVED_END and word != "in":
            raise self._unexpected()
        return self._simple()

    def redirects(self) -> list[Redirect]:
        """The redirections of a compound command."""
        found: list[Redirect] = []
        while True:
            self.blanks()
            redirect = self._redirect()
            if redirect is None:
                return found
            found.append(redirect)

    def _simple(self) -> Node:
        start, row = self.at, self.row()
        command = Command([], [], [], row)
        end = start
        while True:
            self.blanks()
            redirect = self._redirect()
            if redirect is not None:
                command.redirects.append(redirect)
                end = self.at
                continue
            declares = (
                bool(command.words)
                and isinstance(command.words[0], Word)
                and command.words[0].plain in DECLARATIONS
            )
            assign = self.assign() if not command.words or declares else None
            if assign is not None:
                (command.words if declares else command.assigns).append(assign)
                end = self.at
                continue
            word = self.word()
            if word is None:
                break
            command.words.append(word)
            end = self.at
            if len(command.words) == 1 and not command.assigns and self._parentheses(word):
                from reprise.recipe.bash.compound import function_body

                return function_body(self, word.source, row)
        if end == start:
            raise self._unexpected()
        command.end_row = self.row(end)
        return command

    def _parentheses(self, word: Word) -> bool:
        """Whether NAME () follows: the definition of a function."""
        if word.plain is None:
            return False
        match = re.compile(r"[ \t]*\([ \t]*\)").match(self.text, self.at)
        if match is None:
            return False
        self.at = match.end()
        return True

    def assign(self) -> Assign | None:
        """An assignment, where one is next."""
        match = _ASSIGN.match(self.text, self.at)
        if match is None:
            return None
        start, row = self.at, self.row()
        self.at = match.end()
        name, append, index = match.group(1), match.group(2) == "+", None
        if match.group(3):
            index = Word(self.parts("index"), row)
            tail = re.compile(r"\](\+?)=").match(self.text, self.at)
            if tail is None:
                self.at = start
                return None
            append = tail.group(1) == "+"
            self.at = tail.end()
        if self.starts("(") and index is None:
            return Assign(name, self._array(), row, append)
        value = self.word() or Word([], row)
        return Assign(name, value, row, append, index)

    def _array(self) -> Array:
        start = self.at
        self.at += 1
        items: list[tuple[Word | None, Word]] = []
        while True:
            self._newlines()
            if self.starts(")"):
                self.at += 1
                return Array(items)
            index = self._index()
            word = self.word()
            if word is None and index is None:
                raise self.fail("an array is not closed with )", start)
            items.append((index, word or Word([], self.row())))

    def _index(self) -> Word | None:
        if not self.starts("["):
            return None
        start = self.at
        self.at += 1
        index = Word(self.parts("index"), self.row())
        if self.starts("]="):
            self.at += 2
            return index
        self.at = start
        return None

    def _redirect(self) -> Redirect | None:
        match = _REDIRECT.match(self.text, self.at)
        if match is None or (
            match.group(2) in ("<", ">") and self.text.startswith("(", match.end())
        ):
            return None
        found = Redirect(match.group(2), self.row(), descriptor=match.group(1) or "")
        self.at = match.end()
        self.blanks()
        word = self.word()
        if word is None:
            raise self.fail("a redirection has no file")
        if found.operator in ("<<", "<<-"):
            quoted = any(isinstance(part, Lit) and part.quoted for part in word.parts)
            ending = "".join(
                part.text if isinstance(part, Lit) else part.source for part in word.parts
            )
            self._heredocs.append((found, ending, quoted))
        else:
            found.target = word
        return found

    def _newline(self) -> bool:
        """Consume a line's end, and the heredocs that begin after it."""
        if not self.starts("\n"):
            return False
        self.at += 1
        for redirect, ending, quoted in self._heredocs:
            self._heredoc(redirect, ending, quoted)
        self._heredocs.clear()
        return True

    def _heredoc(self, redirect: Redirect, ending: str, quoted: bool) -> None:
        strip = redirect.operator == "<<-"
        row, rows = self.row(), list[str]()
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line = self.text[self.at : end]
            self.at = min(end + 1, len(self.text))
            line = line.lstrip("\t") if strip else line
            if line == ending:
                break
            rows.append(line + "\n")
        body = "".join(rows)
        redirect.target = (
            Word([Lit(body, True)], row, body) if quoted else word_of(body, "text", row)
        )

    def _newlines(self) -> None:
        self.blanks()
        while self._newline():
            self.blanks()

    newlines = _newlines

    def expect(self, word: str, opened: str, row: int) -> None:
        """Consume a reserved word. Raises BashError."""
        self.blanks()
        if self._peek() != word:
            raise self.fail(f"expected {word!r} to close {opened!r} of line {row}")
        self.at += len(word)

    def _unexpected(self) -> Exception:
        near = self._peek() or self.text[self.at : self.at + 2].strip() or "newline"
        return self.fail(f"unexpected {near!r}")

    def arithmetic(self, opened: int) -> ArithCommand | None:
        """((…)) from its opening parentheses; None where it is two subshells."""
        start, row = self.at, self.row(opened)
        self.at += 2
        parts = self.parts("arith", True)
        if not self.starts("))"):
            self.at = start
            return None
        self.at += 2
        return ArithCommand(Word(parts, row), row)
