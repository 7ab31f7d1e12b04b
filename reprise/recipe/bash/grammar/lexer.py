"""Words of bash: quotes, escapes, expansions. Commands are the parser's affair."""

from __future__ import annotations

import re
from bisect import bisect_right

from reprise.recipe.bash.grammar.syntax import (
    Arith,
    BashError,
    Lit,
    Param,
    Part,
    Process,
    Substitution,
    Word,
)
from reprise.recipe.bash.run import TooMuch

__all__ = ["Lexer", "word_of"]

META = " \t\n;&|()<>"
_BLANK = re.compile(r"(?:[ \t]|\\\n)+")
_COMMENT = re.compile(r"#[^\n]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!\-]")
_OPERATOR = re.compile(r":[-=?+]|##|%%|//|/#|/%|\^\^|,,|@[A-Za-z]|[-=?+#%/^,:]")
_RUN = {
    "word": re.compile(r"[^ \t\n;&|()<>\\'\"`$]+"),
    "brace": re.compile(r"[^}\\'\"`$]+"),
    "slash": re.compile(r"[^}/\\'\"`$]+"),
    "index": re.compile(r"[^\]\\'\"`$]+"),
    "double": re.compile(r"[^\\\"`$]+"),
    "arith": re.compile(r"[^()\\\"`$']+"),
    "regex": re.compile(r"[^ \t\n\\'\"`$()]+"),
    "text": re.compile(r"[^\\`$]+"),
}
# Substitutions within substitutions: each level is parsed again when it is run.
_DEEPEST = 50
# Modes in which parentheses nest, and blanks within them belong to the word.
_NESTED = {"arith": "()", "regex": "() \t"}
_ESCAPES = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r",
            "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?"}  # fmt: skip
_DOLLAR_ESCAPE = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|[uU]([0-9a-fA-F]{1,8})|(.))", re.S
)


class Lexer:
    """A position in the text of a script. Rows are counted from `first_row`."""

    def __init__(self, text: str, first_row: int = 1) -> None:
        self.text = text
        self.at = 0
        self._first = first_row
        self._lines = [match.end() for match in re.finditer("\n", text)]
        self.comments: list[int] = []
        self.depth = 0

    def row(self, at: int | None = None) -> int:
        """The line of a position."""
        return self._first + bisect_right(self._lines, self.at if at is None else at)

    def fail(self, message: str, at: int | None = None) -> BashError:
        """The error to raise at a position."""
        return BashError(message, self.row(at))

    def blanks(self) -> None:
        """Pass over blanks, joined lines and a comment."""
        while True:
            match = _BLANK.match(self.text, self.at)
            if match:
                self.at = match.end()
                continue
            comment = _COMMENT.match(self.text, self.at)
            if comment is None:
                return
            self.comments.append(self.row())
            self.at = comment.end()

    def starts(self, text: str) -> bool:
        """Whether `text` is next."""
        return self.text.startswith(text, self.at)

    def word(self, mode: str = "word") -> Word | None:
        """The next word, or None where none begins."""
        start = self.at
        parts = self.parts(mode)
        if self.at == start:
            return None
        return Word(parts, self.row(start), self.text[start : self.at])

    def parts(self, mode: str, quoted: bool = False) -> list[Part]:
        """Parts up to the end of the mode's text; the end itself is not consumed."""
        text, parts, run, depth = self.text, list[Part](), _RUN[mode], 0
        size = len(text)
        while self.at < size:
            match = run.match(text, self.at)
            if match:
                self.at = match.end()
                literal(parts, match.group(), quoted)
                continue
            char = text[self.at]
            if self._expanded(parts, char, mode, quoted):
                continue
            if char in _NESTED.get(mode, ""):
                change = 0 if char in " \t" else 1 if char == "(" else -1
                if depth + change < 0 or (char in " \t" and not depth):
                    return parts
                depth += change
                literal(parts, char, quoted)
                self.at += 1
            elif char == "'" and mode not in ("text", "double"):
                literal(parts, char, quoted)
                self.at += 1
            else:
                return parts
        return parts

    def _expanded(self, parts: list[Part], char: str, mode: str, quoted: bool) -> bool:
        """Take a quote, an escape or an expansion; False where none begins here."""
        if char == "\\":
            self._escape(parts, mode, quoted)
        elif char == "$":
            self._dollar(parts, quoted)
        elif char == "`":
            parts.append(self._backquote(quoted))
        elif mode in ("text", "double"):
            return False
        elif char == '"':
            self._double(parts)
        elif char == "'" and not quoted:
            self._single(parts)
        elif mode == "word" and char in "<>" and self.text.startswith("(", self.at + 1):
            start = self.at
            self.at += 2
            self.nested()
            parts.append(Process(self.text[start : self.at], self.row(start)))
        elif mode == "word" and char == "(" and _extended(parts):
            self._extended_glob(parts)
        else:
            return False
        return True

    def _extended_glob(self, parts: list[Part]) -> None:
        start, depth = self.at, 0
        while self.at < len(self.text):
            char = self.text[self.at]
            depth += (char == "(") - (char == ")")
            self.at += 1
            if depth == 0:
                literal(parts, self.text[start : self.at], False)
                return
        raise self.fail("a pattern is not closed with )", start)

    def _escape(self, parts: list[Part], mode: str, quoted: bool) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        special = mode in ("double", "text", "arith") or (quoted and mode in ("brace", "slash"))
        if following == "\n":
            pass
        elif not following:
            literal(parts, "\\", quoted)
        elif special and following not in ('$`"\\}' if mode != "text" else "$`\\"):
            literal(parts, "\\" + following, True)
        else:
            literal(parts, following, True)
        self.at = min(self.at + 2, len(self.text))

    def _double(self, parts: list[Part]) -> None:
        start = self.at
        self.at += 1
        inner = self.parts("double", True)
        if not self.starts('"'):
            raise self.fail('a double quote (") is not closed', start)
        self.at += 1
        parts.extend(inner or [Lit("", True)])

    def _single(self, parts: list[Part]) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise self.fail("a single quote (') is not closed")
        literal(parts, self.text[self.at + 1 : end], True, empty=True)
        self.at = end + 1

    def _ansi(self, parts: list[Part]) -> None:
        start = self.at
        self.at += 2
        match = re.compile(r"(?:[^\\']|\\.)*", re.S).match(self.text, self.at)
        end = match.end() if match else self.at
        if not self.text.startswith("'", end):
            raise self.fail("a quote ($') is not closed", start)
        literal(parts, _DOLLAR_ESCAPE.sub(_unescaped, self.text[self.at : end]), True, empty=True)
        self.at = end + 1

    def _backquote(self, quoted: bool) -> Substitution:
        start = self.at
        match = re.compile(r"`((?:[^\\`]|\\.)*)`", re.S).match(self.text, self.at)
        if match is None:
            raise self.fail("a backquote (`) is not closed")
        self.at = match.end()
        inner = re.sub(r'\\([$`\\"])' if quoted else r"\\([$`\\])", r"\1", match.group(1))
        return Substitution(inner, self.row(start), quoted)

    def nested(self) -> None:
        """Pass over commands up to their closing parenthesis, which is consumed."""
        from reprise.recipe.bash.grammar.parser import Parser

        if self.depth >= _DEEPEST:
            raise TooMuch
        inner = Parser(self.text, self._first)
        inner.at, inner.depth = self.at, self.depth + 1
        inner.sequence((")",))
        if not inner.starts(")"):
            raise self.fail("an opening parenthesis is not closed")
        self.at = inner.at + 1

    def _dollar(self, parts: list[Part], quoted: bool) -> None:
        start, text = self.at, self.text
        following = text[start + 1 : start + 2]
        if following == "'" and not quoted:
            self._ansi(parts)
        elif following == '"' and not quoted:
            self.at += 1
            self._double(parts)
        elif following == "(":
            self._parenthesis(parts, quoted)
        elif following == "{":
            parts.append(self._braced(quoted))
        elif following == "[":
            self.at += 2
            inner = self.parts("index", True)
            if not self.starts("]"):
                raise self.fail("$[ is not closed", start)
            self.at += 1
            row = self.row(start)
            parts.append(Arith(Word(inner, row), quoted, row, text[start : self.at]))
        else:
            match = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!\-]").match(text, start + 1)
            if match is None:
                literal(parts, "$", quoted)
                self.at += 1
                return
            self.at = match.end()
            parts.append(Param(match.group(), quoted, self.row(start), text[start : self.at]))

    def _parenthesis(self, parts: list[Part], quoted: bool) -> None:
        start, row = self.at, self.row()
        if self.text.startswith("((", start + 1):
            self.at = start + 3
            try:
                inner = self.parts("arith", True)
            except BashError:
                inner = None
            if inner is not None and self.starts("))"):
                self.at += 2
                parts.append(Arith(Word(inner, row), quoted, row, self.text[start : self.at]))
                return
        self.at = start + 2
        self.nested()
        parts.append(Substitution(self.text[start + 2 : self.at - 1], row, quoted))

    def _braced(self, quoted: bool) -> Param:
        start, text = self.at, self.text
        row = self.row()
        self.at += 2
        prefix = ""
        if re.compile(r"[!#](?=[A-Za-z_0-9@*#?])").match(text, self.at):
            prefix = text[self.at]
            self.at += 1
        match = _PARAMETER.match(text, self.at)
        if match is None:
            raise self.fail("${ without the name of a variable: bad substitution", start)
        self.at = match.end()
        found = Param(match.group(), quoted, row, "", prefix=prefix)
        if self.starts("["):
            self.at += 1
            found.index = Word(self.parts("index", False), row)
            self._expect("]", start)
        if prefix == "!" and text[self.at : self.at + 2] in ("@}", "*}"):
            found.operator = text[self.at]
            self.at += 1
        elif not self.starts("}"):
            operator = _OPERATOR.match(text, self.at)
            if operator is None:
                raise self.fail("bad substitution", start)
            found.operator = operator.group()
            self.at = operator.end()
            self._arguments(found)
        self._expect("}", start)
        found.source = text[start : self.at]
        return found

    def _arguments(self, found: Param) -> None:
        replaces = found.operator in ("/", "//", "/#", "/%")
        pattern = found.operator[0] in "#%/^,"
        row = self.row()
        start = self.at
        mode = "slash" if replaces else "brace"
        found.argument = Word(self.parts(mode, found.quoted and not pattern), row)
        found.argument.source = self.text[start : self.at]
        if replaces and self.starts("/"):
            self.at += 1
            found.second = Word(self.parts("brace", False), row)

    def _expect(self, text: str, start: int) -> None:
        if not self.starts(text):
            raise self.fail(f"expected {text}", start)
        self.at += len(text)

    def name(self) -> str | None:
        """The next identifier, consumed."""
        match = _NAME.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        return match.group()


def literal(parts: list[Part], text: str, quoted: bool, empty: bool = False) -> None:
    """Add literal text, joined to the literal before it."""
    if not text and not empty:
        return
    last = parts[-1] if parts else None
    if isinstance(last, Lit) and last.quoted == quoted:
        last.text += text
    else:
        parts.append(Lit(text, quoted))


def _extended(parts: list[Part]) -> bool:
    """Whether an opening parenthesis here begins an extended pattern: ?(, *(, +(, @(, !(."""
    last = parts[-1] if parts else None
    return isinstance(last, Lit) and not last.quoted and last.text[-1:] in tuple("?*+@!")


def _unescaped(match: re.Match[str]) -> str:
    simple, octal, short, long, other = match.groups()
    if simple:
        return _ESCAPES[simple]
    if octal:
        return chr(int(octal, 8) & 0xFF)
    if short or long:
        number = int(short or long, 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    return "\\" + str(other)


def word_of(text: str, mode: str, row: int, quoted: bool = True) -> Word:
    """The whole of `text` as one word. Raises BashError."""
    lexer = Lexer(text, row)
    parts = lexer.parts(mode, quoted)
    if lexer.at < len(text):
        raise lexer.fail(f"unexpected {text[lexer.at]!r}")
    return Word(parts, row, text)
