"""[ … ], test and [[ … ]]: statuses 0 and 1, 2 for an error, None for what is not known."""

from __future__ import annotations

import re

from reprise.recipe.bash.grammar.syntax import Word
from reprise.recipe.bash.redirects import Redirects
from reprise.recipe.bash.state import ArrayValue, Field
from reprise.recipe.bash.unknown import MARKS, has_unknown
from reprise.recipe.bash.variables import SCHEDULER

__all__ = ["Conditions"]

_NUMBERS = ("-eq", "-ne", "-gt", "-ge", "-lt", "-le")
_FILES = tuple("-" + char for char in "abcdefghkprstuwxGLNOS")


def _status(answer: bool | None) -> int | None:
    return None if answer is None else int(not answer)


def _any_of(one: bool | None, other: bool | None) -> bool | None:
    """`or` of answers that may be unknown: true where one of them is."""
    return True if one or other else (None if None in (one, other) else False)


def _all_of(one: bool | None, other: bool | None) -> bool | None:
    """`and` of answers that may be unknown: false where one of them is."""
    return False if False in (one, other) else (None if None in (one, other) else True)


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\s*[-+]?\d+\s*", text) else None


def _compared(operator: str, left: int, right: int) -> bool:
    return {
        "-eq": left == right, "-ne": left != right, "-gt": left > right,
        "-ge": left >= right, "-lt": left < right, "-le": left <= right,
    }[operator]  # fmt: skip


class Conditions(Redirects):
    """Evaluates tests."""

    def condition_text(self, text: str) -> str:
        """A text as a condition takes it: a variable that only a caller would set is unset."""
        if not has_unknown(text):
            return text
        self._because(text)
        if self.strict:
            return text

        def one(match: re.Match[str]) -> str:
            unknown = self.unknowns.first(match.group())
            if unknown is None or not unknown.unset:
                return match.group()
            name = unknown.name.removeprefix("$")
            if SCHEDULER.fullmatch(name) or self.left_open(name):
                return match.group()
            self.assumed.setdefault(unknown.name, self.row or unknown.row)
            return ""

        return MARKS.sub(one, text)

    def _because(self, text: str) -> None:
        """Remember what a condition depends on."""
        known = self.unknowns.first(text)
        if known is not None and not self.cause:
            self.cause = known.text()

    def test(self, words: list[Field]) -> int | None:
        """The words of [ or test, without the bracket."""
        texts = [field.text for field in words]
        if any(field.loose == "words" for field in words):
            return None
        answer, at = self._or(texts, 0)
        return 2 if at < len(texts) else _status(answer)

    def _or(self, words: list[str], at: int) -> tuple[bool | None, int]:
        answer, at = self._and(words, at)
        while at < len(words) and words[at] == "-o":
            other, at = self._and(words, at + 1)
            answer = _any_of(answer, other)
        return answer, at

    def _and(self, words: list[str], at: int) -> tuple[bool | None, int]:
        answer, at = self._not(words, at)
        while at < len(words) and words[at] == "-a":
            other, at = self._not(words, at + 1)
            answer = _all_of(answer, other)
        return answer, at

    def _not(self, words: list[str], at: int) -> tuple[bool | None, int]:
        if at >= len(words):
            return False, at
        rest = len(words) - at
        if rest >= 3 and self._is_binary(words[at + 1]):
            return self._binary(words[at], words[at + 1], words[at + 2]), at + 3
        if words[at] == "!" and rest > 1:
            answer, at = self._not(words, at + 1)
            return (None if answer is None else not answer), at
        if words[at] == "(" and rest > 2:
            answer, at = self._or(words, at + 1)
            return answer, at + 1
        if re.fullmatch(r"-[a-zA-Z]", words[at]) and rest > 1 and words[at + 1] not in ("-a", "-o"):
            return self._unary(words[at], words[at + 1]), at + 2
        text = self.condition_text(words[at])
        return self._filled(text), at + 1

    def _is_binary(self, word: str) -> bool:
        return word in ("=", "==", "!=", "<", ">", "-nt", "-ot", "-ef", *_NUMBERS)

    def _filled(self, text: str) -> bool | None:
        if has_unknown(text):
            known = MARKS.sub("", text)
            absolute = any(unknown.absolute for unknown in self.unknowns.of(text))
            return True if known or absolute else None
        return text != ""

    def _unary(self, operator: str, text: str) -> bool | None:
        if operator in ("-z", "-n"):
            filled = self._filled(self.condition_text(text))
            return filled if operator == "-n" or filled is None else not filled
        if operator == "-v":
            return self._is_set(text)
        if operator == "-o":
            return None
        if operator in _FILES and self.condition_text(text) == "":
            return False
        if operator in ("-f", "-e", "-s", "-r") and self.place(text) in self.state.files:
            return True
        self.cause = self.cause or f"the file {self.unknowns.shown(text)}"
        return None

    def _is_set(self, name: str) -> bool | None:
        base = name.partition("[")[0]
        found = self.lookup(base, self.row)
        if isinstance(found, ArrayValue):
            return bool(found.items)
        if found is None and not self.is_unset(base):
            if self.left_open(base):
                return None
            self.assumed.setdefault(f"${base}", self.row)
        return found is not None

    def _binary(self, left: str, operator: str, right: str) -> bool | None:
        if operator in _NUMBERS:
            if has_unknown(left + right):
                self._because(left + right)
                return None
            numbers = _number(left), _number(right)
            if numbers[0] is None or numbers[1] is None:
                return False
            return _compared(operator, numbers[0], numbers[1])
        left, right = self.condition_text(left), self.condition_text(right)
        if operator in ("=", "==", "!="):
            same = self._same(left, right)
            return same if operator != "!=" or same is None else not same
        if has_unknown(left + right) or operator.startswith("-"):
            return None
        return left < right if operator == "<" else left > right

    def _same(self, left: str, right: str) -> bool | None:
        if not has_unknown(left + right):
            return left == right
        if left == right and "`" not in self.unknowns.shown(left):
            return True
        for text, other in ((left, right), (right, left)):
            if not has_unknown(other):
                expression = ".*".join(re.escape(part) for part in MARKS.split(text))
                if re.fullmatch(expression, other, re.S) is None:
                    return False
        return None

    # [[ … ]]

    def brackets(self, tokens: list[Word | str]) -> int | None:
        """The tokens of [[ … ]]."""
        answer, at = self._either(tokens, 0)
        return 2 if at < len(tokens) else _status(answer)

    def _either(self, tokens: list[Word | str], at: int) -> tuple[bool | None, int]:
        answer, at = self._both(tokens, at)
        while at < len(tokens) and tokens[at] == "||":
            other, at = self._both(tokens, at + 1)
            answer = _any_of(answer, other)
        return answer, at

    def _both(self, tokens: list[Word | str], at: int) -> tuple[bool | None, int]:
        answer, at = self._single(tokens, at)
        while at < len(tokens) and tokens[at] == "&&":
            other, at = self._single(tokens, at + 1)
            answer = _all_of(answer, other)
        return answer, at

    def _single(self, tokens: list[Word | str], at: int) -> tuple[bool | None, int]:
        first = tokens[at] if at < len(tokens) else ""
        if first == "(":
            answer, at = self._either(tokens, at + 1)
            return answer, at + 1
        if not isinstance(first, Word):
            return None, at + 1
        if first.plain == "!":
            answer, at = self._single(tokens, at + 1)
            return (None if answer is None else not answer), at
        operator = tokens[at + 1] if at + 1 < len(tokens) else ""
        name = operator if isinstance(operator, str) else (operator.plain or "")
        other = tokens[at + 2] if at + 2 < len(tokens) else None
        if isinstance(other, Word) and (name == "=~" or self._is_binary(name)):
            return self._word_pair(first, name, other), at + 3
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        if re.fullmatch(r"-[a-zA-Z]", first.plain or "") and isinstance(following, Word):
            return self._unary(first.plain or "", self.text(following)), at + 2
        return self._filled(self.condition_text(self.text(first))), at + 1

    def _word_pair(self, left: Word, operator: str, right: Word) -> bool | None:
        text = self.text(left)
        if operator in _NUMBERS:
            values = self.number(text), self.number(self.text(right))
            if isinstance(values[0], str) or isinstance(values[1], str):
                self._because(f"{values[0]}{values[1]}")
                return None
            return _compared(operator, values[0], values[1])
        text = self.condition_text(text)
        if operator == "=~":
            return self._regex(text, right)
        if operator in ("=", "==", "!="):
            if right.fixed() == "" and right.parts:
                wanted = self.condition_text(self.text(right))
                if not has_unknown(wanted) and not self._has_pattern(right):
                    same = self._same(text, wanted)
                    return same if operator != "!=" or same is None else not same
            same = self.matches(text, right)
            return same if operator != "!=" or same is None else not same
        return self._binary(text, operator, self.text(right))

    def _has_pattern(self, word: Word) -> bool:
        return any(not quoted and re.search(r"[*?\[(]", text) for text, quoted in self.pieces(word))

    def _regex(self, text: str, word: Word) -> bool | None:
        expression = "".join(
            re.escape(piece) if quoted else piece for piece, quoted in self.pieces(word)
        )
        if has_unknown(text + expression):
            return None
        expression = re.sub(
            r"\[:(\w+):\]",
            lambda m: {"digit": "0-9", "alpha": "a-zA-Z", "alnum": "a-zA-Z0-9", "space": r"\s",
                       "upper": "A-Z", "lower": "a-z", "punct": r"!-/:-@"}.get(m.group(1), ""),
            expression,
        )  # fmt: skip
        try:
            found = re.search(expression, text)
        except re.error:
            return None
        groups = [] if found is None else [found.group(), *(one or "" for one in found.groups())]
        self.put_array(
            "BASH_REMATCH", [(None, Field(one, word.row)) for one in groups], word.row, False
        )
        return found is not None
