"""Arithmetic of bash: 64-bit integers, every operator, names whose values are expressions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from reprise.recipe.bash.unknown import MARKS, has_unknown

__all__ = ["BadArithmetic", "Names", "calculate"]

_TOKEN = re.compile(
    r"\s*(?:(\d+#[0-9a-zA-Z@_]+|0[xX][0-9a-fA-F]+|\d+)|([A-Za-z_]\w*)"
    r"|(<<=|>>=|\*\*|\+\+|--|&&|\|\||<<|>>|<=|>=|==|!=|[-+*/%&^|]=|[-+*/%<>=!~&^|?:,()\[\]])|(\S))"
)
_BINARY = [("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="),
           ("<<", ">>"), ("+", "-"), ("*", "/", "%")]  # fmt: skip
_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "^=", "|=", "<<=", ">>=")
_DEPTH = 64


class BadArithmetic(Exception):
    """bash refuses the expression."""


class Names(Protocol):
    """The variables that an expression reads and sets. `index` is '' for a plain variable."""

    def value(self, name: str, index: str) -> str:
        """Its text; it may hold a mark of an unknown value."""
        ...

    def assign(self, name: str, index: str, text: str) -> None:
        """Set it."""
        ...


def calculate(text: str, names: Names, depth: int = 0) -> int | str:
    """The value of an expression, or the mark of the unknown value that it depends on.

    Raises BadArithmetic where bash reports an error.
    """
    if not text.strip():
        return 0
    if depth > _DEPTH:
        raise BadArithmetic("expression recursion level exceeded")
    return _Calculation(text, names, depth).result()


def _wrapped(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


class _Calculation:
    def __init__(self, text: str, names: Names, depth: int) -> None:
        self.names = names
        self.depth = depth
        self.tokens = [
            (match.lastindex or 0, match.group(match.lastindex or 0))
            for match in _TOKEN.finditer(text)
            if match.lastindex
        ]
        self.at = 0
        self.live = True  # False in an operand that short-circuits

    def result(self) -> int | str:
        value = self.comma()
        if self.at < len(self.tokens):
            raise BadArithmetic(f"syntax error near {self.tokens[self.at][1]!r}")
        return value

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        if self.peek() in wanted and self.at < len(self.tokens):
            self.at += 1
            return self.tokens[self.at - 1][1]
        return ""

    def comma(self) -> int | str:
        value = self.assignment()
        while self.take(","):
            value = self.assignment()
        return value

    def assignment(self) -> int | str:
        start = self.at
        target = self.target()
        operator = self.take(*_ASSIGNMENTS) if target else ""
        if not operator:
            self.at = start
            return self.ternary()
        assert target is not None
        value = self.assignment()
        if operator != "=":
            value = self.apply(operator[:-1], self.read(*target), value)
        self.store(target, value)
        return value

    def target(self) -> tuple[str, str] | None:
        """A name, with the text of its index."""
        if self.at >= len(self.tokens) or self.tokens[self.at][0] != 2:
            return None
        name = self.tokens[self.at][1]
        self.at += 1
        if not self.take("["):
            return name, ""
        depth, inner = 1, list[str]()
        while self.at < len(self.tokens):
            piece = self.peek()
            self.at += 1
            depth += (piece == "[") - (piece == "]")
            if depth == 0:
                return name, " ".join(inner)
            inner.append(piece)
        raise BadArithmetic("an index is not closed")

    def store(self, target: tuple[str, str], value: int | str) -> None:
        if self.live:
            self.names.assign(*target, str(value))

    def read(self, name: str, index: str) -> int | str:
        if not self.live:
            return 0
        text = self.names.value(name, index)
        if has_unknown(text):
            return _mark(text)
        if re.fullmatch(r"\s*-?\d+\s*", text) and not re.match(r"\s*-?0\d", text):
            return int(text)
        return calculate(text, self.names, self.depth + 1)

    def ternary(self) -> int | str:
        condition = self.binary(0)
        if not self.take("?"):
            return condition
        live = self.live
        self.live = live and condition != 0
        first = self.comma()
        if not self.take(":"):
            raise BadArithmetic("expected ':' after '?'")
        self.live = live and condition == 0
        second = self.assignment() if self.live or isinstance(condition, int) else self.ternary()
        self.live = live
        if isinstance(condition, str):
            return condition
        return first if condition else second

    def binary(self, level: int) -> int | str:
        if level == len(_BINARY):
            return self.power()
        left = self.binary(level + 1)
        while operator := self.take(*_BINARY[level]):
            live = self.live
            if operator in ("&&", "||") and isinstance(left, int):
                self.live = live and ((left != 0) is (operator == "&&"))
            right = self.binary(level + 1)
            self.live = live
            left = self.apply(operator, left, right)
        return left

    def power(self) -> int | str:
        base = self.unary()
        if self.take("**"):
            return self.apply("**", base, self.power())
        return base

    def unary(self) -> int | str:
        if operator := self.take("++", "--"):
            target = self.target()
            if target is None:
                value = self.unary()  # --3 is 3, as bash has it
                return value
            changed = self.apply(operator[0], self.read(*target), 1)
            self.store(target, changed)
            return changed
        if operator := self.take("+", "-", "!", "~"):
            value = self.unary()
            if isinstance(value, str):
                return value
            made = {"+": value, "-": -value, "!": int(value == 0), "~": ~value}[operator]
            return _wrapped(made)
        return self.postfix()

    def postfix(self) -> int | str:
        if self.take("("):
            value = self.comma()
            if not self.take(")"):
                raise BadArithmetic("expected ')'")
            return value
        target = self.target()
        if target is not None:
            value = self.read(*target)
            if operator := self.take("++", "--"):
                self.store(target, self.apply(operator[0], value, 1))
            return value
        kind, text = self.tokens[self.at] if self.at < len(self.tokens) else (0, "")
        self.at += 1
        if kind == 1:
            return _number(text)
        if kind == 4 and MARKS.match(text):
            # Digits beside an unknown value belong to it: 1$N is one number.
            while self.at < len(self.tokens) and self.tokens[self.at][0] == 1:
                self.at += 1
            return text
        raise BadArithmetic("operand expected" + (f", found {text!r}" if text else ""))

    def apply(self, operator: str, left: int | str, right: int | str) -> int | str:
        if isinstance(left, int) and operator in ("&&", "||"):
            if (left == 0) is (operator == "&&"):
                return int(operator == "||")
            return right if isinstance(right, str) else int(right != 0)
        if isinstance(left, str):
            return left
        if isinstance(right, str):
            return right
        if not self.live:
            return 0
        if operator in ("/", "%") and right == 0:
            raise BadArithmetic("division by 0")
        if operator == "**" and right < 0:
            raise BadArithmetic("exponent less than 0")
        return _wrapped(_OPERATIONS[operator](left, right))


def _quotient(left: int, right: int) -> int:
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _quotient,
    "%": lambda a, b: a - b * _quotient(a, b),
    "**": lambda a, b: pow(a, b, 1 << 64),
    "<<": lambda a, b: a << (b & 63),
    ">>": lambda a, b: a >> (b & 63),
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
}


def _mark(text: str) -> str:
    match = MARKS.search(text)
    assert match is not None
    return match.group()


def _number(text: str) -> int:
    base, separator, digits = text.partition("#")
    if separator:
        return _wrapped(_in_base(digits, int(base)))
    if text[:2] in ("0x", "0X"):
        return _wrapped(int(text, 16))
    if text.startswith("0") and len(text) > 1:
        if not re.fullmatch(r"[0-7]+", text):
            raise BadArithmetic(f"{text}: value too great for base")
        return _wrapped(int(text, 8))
    return _wrapped(int(text))


def _in_base(digits: str, base: int) -> int:
    order = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@_"
    if not 2 <= base <= 64:
        raise BadArithmetic(f"{base}: invalid arithmetic base")
    value = 0
    for digit in digits.lower() if base <= 36 else digits:
        place = order.index(digit)
        if place >= base:
            raise BadArithmetic(f"{digits}: value too great for base")
        value = value * base + place
    return value
