"""The words of a bash script: expansion and removal of quotes, without running anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

__all__ = ["Command", "Shell", "Word", "Words"]


@dataclass(frozen=True, slots=True)
class Word:
    """One word after expansion; `row` is its line, `loose` that bash could split or glob it."""

    text: str
    row: int
    loose: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: its own variables and its words."""

    row: int
    words: tuple[Word, ...]
    environment: Mapping[str, str]
    end_row: int = 0


@dataclass(slots=True)
class Shell:
    """The state after reading a script from top to bottom."""

    variables: dict[str, str | list[Word]] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)
    exported_rows: dict[str, int] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    comments: list[int] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    undecided: list[int] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)


class Words:
    """Turns nodes of the grammar into words, with the variables that are known so far."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.shell = Shell()

    def text(self, node: Node) -> str:
        """The source of a node."""
        return self.source[node.start_byte : node.end_byte].decode(errors="replace")

    def words(self, node: Node) -> Iterator[Word]:
        """The words that one node becomes: an array's elements, or one."""
        row = node.start_point[0] + 1
        if node.type == "comment":
            return
        array = self.array(node)
        if array is not None:
            yield from array
        else:
            yield Word(self.value(node), row, self.loose(node))

    def array(self, node: Node) -> list[Word] | None:
        """The elements of "${NAME[@]}"; an unknown array and "$@" have none."""
        inner = node.named_children[0] if node.type == "string" and node.named_children else node
        text = self.text(inner)
        if text in ("$@", "$*", "${@}", "${*}"):
            return []
        match = re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", text)
        if match is None:
            return None
        value = self.shell.variables.get(match.group(1), [])
        if isinstance(value, list):
            return value
        return [Word(value, node.start_point[0] + 1)] if value else []

    def loose(self, node: Node) -> str:
        """Why bash might make something else of an unquoted word; empty when it would not."""
        bare = "".join(
            self.text(child)
            for child in ([node] if node.type == "word" else node.children)
            if child.type in ("word", "[", "]", "{", "}") or not child.is_named
        )
        if node.type not in ("word", "concatenation", "brace_expression"):
            return ""
        if re.search(r"\{[^{}]*(,|\.\.)[^{}]*\}", self.text(node)) and "{" in bare:
            return "braces"
        return "brackets" if "[" in bare else ""

    def value(self, node: Node) -> str:
        """The text of a node after expansion and removal of quotes."""
        takers = {
            "raw_string": lambda node: self.text(node)[1:-1],
            "ansi_c_string": lambda node: self.text(node)[2:-1].encode().decode("unicode_escape"),
            "string": self.string,
            "concatenation": self.joined,
            "command_name": self.joined,
            "simple_expansion": lambda node: self.variable(self.text(node)[1:], node),
            "expansion": self.expansion,
            "arithmetic_expansion": self.calculation,
            "command_substitution": self.substitution,
            "process_substitution": self.substitution,
        }
        return takers.get(node.type, self.plain)(node)

    def plain(self, node: Node) -> str:
        """A bare word without its backslashes."""
        return self.literal(node.start_byte, node.end_byte, quoted=False)

    def string(self, node: Node) -> str:
        """What stands between double quotes."""
        start, end = node.start_byte + 1, node.end_byte - 1
        return self.pieces(node.named_children, start, end, quoted=True)

    def joined(self, node: Node) -> str:
        """Parts that stand together without a blank."""
        return self.pieces(node.named_children, node.start_byte, node.end_byte, quoted=False)

    def calculation(self, node: Node) -> str:
        """$((…)) as a number, or as it stands where it cannot be calculated."""
        inner = node.named_children[0] if node.named_children else None
        number = self.arithmetic(inner) if inner is not None else None
        return self.text(node) if number is None else str(number)

    def substitution(self, node: Node) -> str:
        """$(…) is never run: a marker."""
        self.shell.unknown[self.text(node)] = node.start_point[0] + 1
        return "$SUBSTITUTION"

    def pieces(self, children: Sequence[Node], start: int, end: int, *, quoted: bool) -> str:
        """Children in order with the literal text between them (tree-sitter leaves gaps)."""
        found, at = [], start
        for child in children:
            found.append(self.literal(at, child.start_byte, quoted))
            if child.type == "string_content":
                found.append(self.literal(child.start_byte, child.end_byte, quoted))
            else:
                found.append(self.value(child))
            at = child.end_byte
        found.append(self.literal(at, end, quoted))
        return "".join(found)

    def literal(self, start: int, end: int, quoted: bool) -> str:
        """Source text without the backslashes that bash would take away."""
        text = self.source[start:end].decode(errors="replace")
        escaped = r'\\([$`"\\\n])' if quoted else r"\\(\n|.)"
        return re.sub(escaped, lambda m: "" if m.group(1) == "\n" else m.group(1), text)

    def variable(self, name: str, node: Node) -> str:
        """The value of a variable; `$NAME` where the script does not set it."""
        value = self.shell.variables.get(name)
        if isinstance(value, list):
            return value[0].text if value else ""
        if value is None:
            self.shell.unknown.setdefault(f"${name}", node.start_point[0] + 1)
            return f"${name}"
        return value

    def expansion(self, node: Node) -> str:
        """${NAME}, and its forms with a default; other forms stay as text."""
        text = self.text(node)
        match = re.match(r"\$\{(\w+)(:?[-=+])?", text)
        if match is None:
            self.shell.unknown[text] = node.start_point[0] + 1
            return "$EXPANSION"
        name, operator = match.group(1), match.group(2) or ""
        value = self.shell.variables.get(name)
        if not operator:
            return self.variable(name, node)
        is_set = value is not None and (value != "" or ":" not in operator)
        at = node.start_byte + match.end()
        rest = [child for child in node.named_children if child.start_byte >= at]
        other = self.pieces(rest, at, node.end_byte - 1, quoted=False)
        if operator.endswith("+"):
            return other if is_set else ""
        if is_set:
            return value if isinstance(value, str) else self.variable(name, node)
        if operator.endswith("="):
            self.shell.variables[name] = other
        return other

    def arithmetic(self, node: Node) -> int | None:
        """The value of an arithmetic expression; None where it is not known."""
        kind, text = node.type, self.text(node)
        if kind in ("number", "word") and re.fullmatch(r"-?\d+", text):
            return int(text)
        if kind in ("variable_name", "simple_expansion", "expansion", "word"):
            value = self.value(node) if "$" in text else self.variable(text, node)
            return int(value) if re.fullmatch(r"-?\d+", value) else None
        if kind == "parenthesized_expression" and node.named_children:
            return self.arithmetic(node.named_children[0])
        if kind == "binary_expression" and len(node.named_children) == 2:
            left, right = (self.arithmetic(child) for child in node.named_children)
            operator = next((self.text(c) for c in node.children if not c.is_named), "")
            return _calculated(left, operator, right)
        return None


def _calculated(left: int | None, operator: str, right: int | None) -> int | None:
    if left is None or right is None or (operator in ("/", "%") and right == 0):
        return None
    if operator == "/":
        return int(left / right)
    table = {"+": left + right, "-": left - right, "*": left * right}
    if operator == "%":
        return left - right * int(left / right)
    return table.get(operator)
