"""What a bash script would put into its variables and commands, read and never executed.

The grammar is tree-sitter's. Assignments, arrays, defaults, simple tests and arithmetic are
evaluated; what cannot be known without running something (a command substitution, a variable of
the caller) stays as text, and is remembered.
"""

from __future__ import annotations

import re

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from reprise.recipe.shell_words import Command, Shell, Word, Words

__all__ = ["Command", "Shell", "Word", "read_shell"]

_LANGUAGE = Language(tree_sitter_bash.language())
_COMPARE = {"-eq": "==", "-ne": "!=", "-gt": ">", "-ge": ">=", "-lt": "<", "-le": "<="}


def read_shell(source: str) -> Shell:
    """Read the text of a bash script. Rows with what is no bash are listed in `broken`."""
    reader = _Reader(source.encode())
    root = Parser(_LANGUAGE).parse(reader.source).root_node
    reader.errors(root)
    reader.block(root)
    return reader.shell


class _Reader(Words):
    """Goes through the statements in their order."""

    def errors(self, node: Node) -> None:
        if node.is_error or node.is_missing:
            self.shell.broken.append(node.start_point[0] + 1)
        elif node.has_error:
            for child in node.children:
                self.errors(child)

    def block(self, node: Node) -> None:
        for child in node.named_children:
            self.statement(child)

    def statement(self, node: Node) -> bool | None:
        """Take a statement in; True or False is its exit status where that is known."""
        takers = {
            "variable_assignment": self.assignment,
            "declaration_command": self.declare,
            "command": self.command,
            "comment": self.comment,
            "test_command": self.test,
            "list": self.chain,
            "if_statement": self.branch,
            "negated_command": self.negation,
            "function_definition": self.nothing,
        }
        return takers.get(node.type, self.other)(node)

    def nothing(self, node: Node) -> None:
        """A function is not called here: what it would do is not read."""

    def comment(self, node: Node) -> None:
        self.shell.comments.append(node.start_point[0] + 1)

    def other(self, node: Node) -> None:
        if node.type in ("for_statement", "while_statement", "case_statement"):
            self.shell.undecided.append(node.start_point[0] + 1)
        self.block(node)

    def negation(self, node: Node) -> bool | None:
        inner = self.statement(node.named_children[0]) if node.named_children else None
        return None if inner is None else not inner

    def assignment(self, node: Node) -> bool:
        self.assign(node)
        return True

    def chain(self, node: Node) -> bool | None:
        left, right = node.named_children[0], node.named_children[-1]
        wanted = any(child.type == "&&" for child in node.children)
        status = self.statement(left)
        if status is None:
            if right.type == "variable_assignment":
                self.shell.undecided.append(node.start_point[0] + 1)
            return self.statement(right)
        return self.statement(right) if status is wanted else status

    def branch(self, node: Node) -> bool | None:
        """An if: the branch that is taken, or all of them where that cannot be known.

        True when a branch was surely taken, False when surely none, else None.
        """
        # The grammar names the condition of an if, and not that of an elif.
        condition = node.child_by_field_name("condition") or next(iter(node.named_children), None)
        taken = self.statement(condition) if condition is not None else None
        if taken is None:
            self.shell.undecided.append(node.start_point[0] + 1)
        first = taken
        for child in node.named_children:
            if child == condition:
                continue
            if child.type == "elif_clause":
                if taken is not True:
                    inner = self.branch(child)
                    taken = None if taken is None else inner
            elif child.type == "else_clause":
                if taken is not True:
                    self.block(child)
            elif first is not False:
                self.statement(child)
        return taken

    def test(self, node: Node) -> bool | None:
        if len(node.named_children) != 1:
            return None
        inner = node.named_children[0]
        parts = [child for child in inner.children if child.type not in ("(", ")")]
        if inner.type == "binary_expression" and len(parts) == 3:
            left, right = self.value(parts[0]), self.value(parts[2])
            if "$" in left + right:
                return None
            return _compared(left, self.text(parts[1]), right)
        if inner.type == "unary_expression" and len(parts) == 2:
            operator, value = self.text(parts[0]), self.value(parts[1])
            if operator in ("-z", "-n") and "$" not in value:
                return (value == "") is (operator == "-z")
        return None

    def assign(self, node: Node, exported: bool = False) -> None:
        name_node = node.child_by_field_name("name")
        value_node = node.child_by_field_name("value")
        if name_node is None:
            return
        name = self.text(name_node)
        append = any(child.type == "+=" for child in node.children)
        if value_node is not None and value_node.type == "array":
            words = [word for child in value_node.named_children for word in self.words(child)]
            before = self.shell.variables.get(name)
            self.shell.variables[name] = [
                *(before if append and isinstance(before, list) else []),
                *words,
            ]
            return
        text = self.value(value_node) if value_node is not None else ""
        before = self.shell.variables.get(name, "")
        value = before + text if append and isinstance(before, str) else text
        self.shell.variables[name] = value
        if exported or name in self.shell.exported:
            self.export(name, value, node)

    def export(self, name: str, value: str, node: Node) -> None:
        self.shell.exported[name] = value
        self.shell.exported_rows[name] = node.start_point[0] + 1

    def declare(self, node: Node) -> bool:
        exported = self.text(node).startswith("export")
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.assign(child, exported)
            elif child.type == "variable_name" and exported:
                value = self.shell.variables.get(self.text(child))
                if isinstance(value, str):
                    self.export(self.text(child), value, child)
        return True

    def command(self, node: Node) -> None:
        environment: dict[str, str] = {}
        words: list[Word] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                name, value = (child.child_by_field_name(part) for part in ("name", "value"))
                if name is not None:
                    environment[self.text(name)] = self.value(value) if value is not None else ""
            elif child.type == "command_name":
                words += [word for part in child.named_children for word in self.words(part)]
            elif child.type not in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
                words += self.words(child)
        rows = node.start_point[0] + 1, node.end_point[0] + 1
        self.shell.commands.append(Command(rows[0], tuple(words), environment, rows[1]))


def _compared(left: str, operator: str, right: str) -> bool | None:
    if operator in ("=", "=="):
        return left == right
    if operator == "!=":
        return left != right
    sign = _COMPARE.get(operator)
    if sign is None or not (re.fullmatch(r"-?\d+", left) and re.fullmatch(r"-?\d+", right)):
        return None
    a, b = int(left), int(right)
    return {"==": a == b, "!=": a != b, ">": a > b, ">=": a >= b, "<": a < b, "<=": a <= b}[sign]
