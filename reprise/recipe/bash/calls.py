"""Simple commands: functions, other shells, and programs, which are recorded and not started."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Sequence

from reprise.recipe.bash.conditions import Conditions
from reprise.recipe.bash.grammar.syntax import Array, Assign, Command, Node, Word
from reprise.recipe.bash.run import Run
from reprise.recipe.bash.state import Field, Flow, State, Variable
from reprise.recipe.bash.unknown import has_unknown
from reprise.recipe.script import programs
from reprise.recipe.script.inner import Inner, inner_shell

__all__ = ["Calls"]

_DEPTH = 60
_SHELLS = ("bash", "sh", "zsh", "dash")
_MANY_RUNS = 5_000


class Calls(Conditions):
    """Runs simple commands."""

    depth = 0
    substituted: int | None = 0
    """The status of the last command substitution: that of an assignment."""

    def simple(self, node: Command) -> int | None:
        """Run a simple command."""
        self.row = node.row
        first = node.words[0] if node.words else None
        if isinstance(first, Word) and first.plain in (
            "declare", "typeset", "local", "export", "readonly",
        ):  # fmt: skip
            return self.redirected(node.redirects, lambda: self.declare(node, first.plain or ""))
        fields = self.fields([word for word in node.words if isinstance(word, Word)])
        if self.flow is not None:
            return 1
        if not fields:
            self.substituted = 0
            for assign in node.assigns:
                self.set(assign)
            return self.redirected(node.redirects, lambda: self.substituted)
        return self.redirected(node.redirects, lambda: self._named(fields, node))

    def set(self, assign: Assign, exported: bool | None = None) -> None:
        """Make an assignment."""
        self.row = assign.row
        if isinstance(assign.value, Array):
            items: list[tuple[str | None, Field]] = []
            for index, word in assign.value.items:
                if index is not None:
                    items.append((self.text(index), Field(self.text(word), word.row)))
                else:
                    items += [(None, field) for field in self.expand(word)]
            self.put_array(assign.name, items, assign.row, assign.append)
        else:
            text = self.value_text(assign.value)
            index_text = self.text(assign.index) if assign.index is not None else None
            self.put(assign.name, text, assign.row, assign.append, index_text)
        if exported is not None or "allexport" in self.state.options:
            self.state.variables[assign.name].exported = exported is not False

    def _named(self, fields: list[Field], node: Command) -> int | None:
        name = fields[0].text
        function = self.state.functions.get(name)
        if function is not None:
            return self._with(node, lambda: self.call(function, fields))
        taker = self.builtin(name)
        if taker is not None:
            if name in ("eval", "source", ".", "read", "exec", "command", "builtin"):
                return self._with(node, lambda: taker(fields[1:], node))
            return taker(fields[1:], node)
        return self._with(node, lambda: self.program(fields, node))

    def _with(self, node: Command, what: Callable[[], int | None]) -> int | None:
        """Run with the variables that stand before a command, exported for it alone."""
        if not node.assigns:
            return what()
        names = [assign.name for assign in node.assigns]
        before = {name: self.state.variables.get(name) for name in names}
        saved = {name: one.copy() for name, one in before.items() if one is not None}
        for assign in node.assigns:
            self.set(assign, exported=True)
        try:
            return what()
        finally:
            for name in names:
                if name in saved:
                    self.state.variables[name] = saved[name]
                else:
                    self.state.variables.pop(name, None)

    def call(self, body: Node, fields: list[Field]) -> int | None:
        """Call a function."""
        if self.depth >= _DEPTH:
            return None
        arguments = self.state.arguments
        before = self.locals
        self.locals = {}
        self.state.arguments = fields[1:]
        self.depth += 1
        self.in_function += 1
        try:
            status = self.run(body)
        finally:
            self.depth -= 1
            self.in_function -= 1
            for name, variable in self.locals.items():
                if variable is None:
                    self.state.variables.pop(name, None)
                else:
                    self.state.variables[name] = variable
            self.locals = before
            self.state.arguments = arguments
        if self.flow is not None and self.flow.kind == "return":
            status, self.flow = self.flow.status, None
        return status

    locals: dict[str, Variable | None] = {}  # noqa: RUF012

    def program(self, fields: list[Field], node: Command) -> int | None:
        """A program: recorded; what it prints is known for a few that only work on text."""
        self._record(fields, node)
        words = [field.text for field in fields]
        name = posixpath.basename(words[0])
        if name in _SHELLS:
            return self._shell(words, node.row)
        inner = inner_shell(words)
        if inner is not None:
            self._inner(inner, node.row)
        known = programs.printed(name, words[1:], self.stdin, self)
        if known is not None:
            self.write(known)
            return 0
        # Without a line's end: it may well print nothing.
        name = f"`{self._shown(words)}`"
        self.cause = self.cause or name
        self.write(self.unknown(name, node.row))
        return None

    def _shown(self, words: list[str]) -> str:
        text = " ".join(self.unknowns.shown(word) for word in words)
        return text if len(text) <= 120 else text[:117] + "..."

    def _record(self, fields: list[Field], node: Command) -> None:
        if len(self.runs) >= _MANY_RUNS:
            return
        exported = {
            name: variable
            for name, variable in self.state.variables.items()
            if variable.exported and isinstance(variable.value, str)
        }
        self.runs.append(
            Run(
                tuple(fields),
                {name: str(variable.value) for name, variable in exported.items()},
                {name: variable.row for name, variable in exported.items()},
                node.row,
                node.end_row,
                self.branches[-1] if self.branches else None,
                self.via,
                self.stdin or "",
            )
        )

    def _shell(self, words: list[str], row: int) -> int | None:
        """bash -c TEXT, bash FILE, or bash that reads a heredoc."""
        at = 1
        while at < len(words) and words[at][:1] in ("-", "+") and words[at] != "-":
            option = words[at]
            if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", option):
                text = words[at + 1] if at + 1 < len(words) else ""
                return self._child(text, words[at + 3 :], row, zero=words[at + 2 : at + 3])
            at += 2 if option in ("-o", "+o", "-O", "--rcfile", "--init-file") else 1
            if option == "-s":
                break
        if at < len(words) and words[at] != "-" and "-s" not in words[:at]:
            other = self.script_text(words[at])
            if other is None:
                self.not_read.setdefault(self.unknowns.shown(words[at]), row)
                return None
            return self._child(other, words[at + 1 :], row, words[at])
        if self.stdin is not None:
            return self._child(self.stdin, [], row)
        return None

    def _child(
        self,
        text: str,
        arguments: list[str],
        row: int,
        path: str = "",
        keep: bool = True,
        zero: Sequence[str] = (),
    ) -> int | None:
        """Another bash on a text, with what is exported (`keep`) or nothing."""
        if self.depth >= _DEPTH:
            return None
        state, flow, before = self.state, self.flow, self.path
        fields = [Field(word, row) for word in arguments]
        self.state = state.child(fields) if keep else State(arguments=fields)
        self.flow = None
        self.depth += 1
        if path or zero:
            self.path = self.place(path) if path else zero[0]
        functions, self.in_function = self.in_function, 0
        try:
            status = self.source(text, 1 if path else row)
            ended: Flow | None = self.flow
            return ended.status if ended is not None else status
        finally:
            self.depth -= 1
            self.in_function = functions
            self.state, self.flow, self.path = state, flow, before

    def _inner(self, inner: Inner, row: int) -> None:
        """What a program hands to a shell on another host or in a container."""
        before, out = self.via, self.out
        self.via = (*before, inner.program)
        self.out = None
        try:
            text: str | None = inner.text if inner.text is not None else self.stdin
            if inner.text is None and inner.script is not None:
                text = self.script_text(inner.script)
                if text is None:
                    self.not_read.setdefault(self.unknowns.shown(inner.script), row)
            if text is not None:
                self._child(text, list(inner.arguments), row, keep=inner.keeps)
        finally:
            self.via, self.out = before, out


def quoted(words: list[str]) -> str:
    """Words as a line that a shell reads back."""
    return " ".join(word if has_unknown(word) else shlex.quote(word) for word in words)
