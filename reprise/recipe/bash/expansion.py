"""Expansion of words, in bash's order: braces, tilde, parameters, arithmetic, splitting, quotes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from reprise.recipe.bash import pattern as patterns
from reprise.recipe.bash.braces import braced
from reprise.recipe.bash.grammar.syntax import Arith, Lit, Param, Part, Process, Substitution, Word
from reprise.recipe.bash.parameters import Parameters
from reprise.recipe.bash.state import Field, Ready
from reprise.recipe.bash.unknown import MARKS, has_unknown

__all__ = ["Expansion"]

_GLOB = re.compile(r"[*?]")


class _Collector:
    """Gathers pieces into fields: quoted text never splits, the rest does at IFS."""

    def __init__(self, row: int) -> None:
        self.row = row
        self.fields: list[Field] = []
        self.current: list[str] | None = None
        self.source_row = row
        self.loose = ""

    def add(self, text: str, row: int | None = None) -> None:
        if self.current is None:
            self.current = []
            self.source_row = row or self.row
        elif row is None or row != self.source_row:
            self.source_row = self.row
        self.current.append(text)

    def end(self) -> None:
        if self.current is not None:
            self.fields.append(Field("".join(self.current), self.source_row, self.loose))
        self.current = None

    def split(self, text: str, separators: str, row: int | None) -> None:
        """Add text that splits at IFS."""
        if not separators:
            if text:
                self.add(text, row)
            return
        blank = "".join(char for char in separators if char in " \t\n")
        hard = "".join(char for char in separators if char not in " \t\n")
        at, size = 0, len(text)
        while at < size:
            char = text[at]
            if char in blank:
                while at < size and text[at] in blank:
                    at += 1
                if at < size and text[at] in hard and self.current is not None:
                    continue
                self.end()
            elif char in hard:
                if self.current is None:
                    self.add("", row)
                self.end()
                at += 1
                while at < size and text[at] in blank:
                    at += 1
            else:
                start = at
                while at < size and text[at] not in separators:
                    at += 1
                self.add(text[start:at], row)


class Expansion(Parameters):
    """Turns words of the source into fields."""

    def fields(self, words: Iterable[Word]) -> list[Field]:
        """All fields of several words."""
        return [field for word in words for field in self.expand(word)]

    def expand(self, word: Word) -> list[Field]:
        """The fields that one word becomes."""
        if len(word.parts) == 1 and isinstance(word.parts[0], Lit):
            part = word.parts[0]
            if part.quoted or not re.search(r"[{~\[*?]", part.text):
                return [Field(part.text, word.row)]
        found: list[Field] = []
        variants = braced(word.parts)
        for parts in variants:
            found += self._one(parts, word, "braces" if len(variants) > 1 else "")
        return found

    def _one(self, parts: list[Part], word: Word, loose: str) -> list[Field]:
        collector = _Collector(word.row)
        separators = self.separators()
        globbed = False
        for at, part in enumerate(parts):
            if isinstance(part, Lit):
                text = part.text if part.quoted else self._tilde(part.text, at, parts)
                collector.add(text)
                if not part.quoted:
                    globbed = globbed or _GLOB.search(text) is not None
                    if "[" in text and not loose:
                        loose = "brackets"
                continue
            value, row = self.piece(part)
            if isinstance(value, list):
                self._collect(collector, value, part, separators)
            elif part.quoted:
                collector.add(value, row)
            else:
                collector.split(value, separators, row)
        collector.loose = loose
        collector.end()
        if not globbed or "noglob" in self.state.options:
            return collector.fields
        return [self._globbed(field) for field in collector.fields]

    def _globbed(self, field: Field) -> Field:
        """A file pattern stays as it is where it is part of an option, else names files."""
        if "=" in field.text or field.text.startswith("-"):
            return field
        return Field(self.unknown(f"the files that match {field.text}", field.row), field.row)

    def _collect(
        self, collector: _Collector, values: list[Field], part: Part, separators: str
    ) -> None:
        quoted = getattr(part, "quoted", False)
        for number, field in enumerate(values):
            if number:
                collector.end()
                collector.loose = ""
            if not quoted and not isinstance(values, Ready):
                collector.split(field.text, separators, field.row)
                continue
            if field.loose == "words" and collector.current is None:
                collector.fields.append(field)
                continue
            collector.add(field.text, field.row)
            if field.loose:
                collector.loose = field.loose
        if quoted:
            loose = collector.loose
            if len(values) and collector.current is not None and loose:
                collector.end()
                collector.loose = ""

    def piece(self, part: Part) -> tuple[str | list[Field], int | None]:
        """A part's value, and the line that wrote it where that is a variable's."""
        if isinstance(part, Lit):
            return part.text, None
        if isinstance(part, Param):
            value = self.parameter(part)
            if isinstance(value, str) and not part.operator and not part.prefix:
                found = self.state.variables.get(part.name)
                return value, found.row if found is not None else None
            return value, None
        if isinstance(part, Arith):
            before, self.row = self.row, part.row
            number = self.number(self.text(part.word))
            self.row = before
            return str(number), None
        if isinstance(part, Substitution):
            return self.substitute(part), None
        assert isinstance(part, Process)
        return self.unknown(f"`{part.source}`", part.row), None

    def text(self, word: Word) -> str:
        """A word as one text, without splitting: an assignment's value, a pattern of [[."""
        made = list[str]()
        for at, part in enumerate(word.parts):
            if isinstance(part, Lit):
                made.append(part.text if part.quoted else self._tilde(part.text, at, word.parts))
                continue
            value, _ = self.piece(part)
            made.append(value if isinstance(value, str) else " ".join(f.text for f in value))
        return "".join(made)

    def value_text(self, word: Word) -> str:
        """The value of an assignment: tilde expands after every colon."""
        text = self.text(word)
        plain = word.plain
        if plain is not None and ":~" in plain:
            home = self._home()
            text = re.sub(r":~(?=[/:]|\Z)", lambda _: ":" + home, text)
        return text

    def pieces(self, word: Word) -> list[tuple[str, bool]]:
        """A word as a pattern: texts, and whether they are quoted."""
        found: list[tuple[str, bool]] = []
        for part in word.parts:
            value, _ = self.piece(part)
            text = value if isinstance(value, str) else " ".join(field.text for field in value)
            found.append((text, bool(getattr(part, "quoted", False))))
        return found

    def matches(self, text: str, word: Word) -> bool | None:
        """Whether a text matches a pattern; None where one of them is not known."""
        pieces = self.pieces(word)
        if has_unknown("".join(piece for piece, _ in pieces)):
            return None
        if not has_unknown(text):
            return patterns.matches(text, pieces)
        # Any text at all matches a bare *.
        if patterns.expression(pieces) == ".*":
            return True
        return None if self._may_match(text, pieces) else False

    def _may_match(self, text: str, pieces: list[tuple[str, bool]]) -> bool:
        """Whether some value of the unknown parts could make the text match a plain pattern."""
        if patterns.is_pattern(pieces):
            return True
        wanted = "".join(piece for piece, _ in pieces)
        expression = ".*".join(re.escape(part) for part in MARKS.split(text))
        return re.fullmatch(expression, wanted, re.S) is not None

    def separators(self) -> str:
        """IFS."""
        value = self.lookup("IFS", self.row)
        return value if isinstance(value, str) else " \t\n"

    def _home(self) -> str:
        value = self.lookup("HOME", self.row)
        return value if isinstance(value, str) else ""

    def _tilde(self, text: str, at: int, parts: list[Part]) -> str:
        """~ and ~/… at the start of a word, and after NAME= (bash 5.2: identifiers only)."""
        if "~" not in text or at:
            return text
        match = re.match(r"([A-Za-z_]\w*\+?=)?~(?=/|\Z)", text)
        if match is None or (match.end() == len(text) and len(parts) > 1):
            return text
        return (match.group(1) or "") + self._home() + text[match.end() :]
