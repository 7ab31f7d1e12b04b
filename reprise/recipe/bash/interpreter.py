"""What a script does to its variables, and the programs it would start; none is started.

A condition that something outside the script decides takes both ways: the states are joined, and
what they do not have in common is unknown from there on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reprise.recipe.bash.grammar.parser import Parser
from reprise.recipe.bash.grammar.syntax import (
    AndOr,
    ArithCommand,
    BashError,
    Brackets,
    Case,
    CFor,
    Command,
    For,
    Function,
    Group,
    If,
    Node,
    Pipeline,
    Sequence,
    Subshell,
    Substitution,
    While,
    Word,
)
from reprise.recipe.bash.loops import Loops
from reprise.recipe.bash.run import TooMuch
from reprise.recipe.bash.state import Flow, State, merged
from reprise.recipe.bash.unknown import MARKS, Unknown

__all__ = ["Interpreter"]

_STEPS = 200_000


@dataclass(slots=True)
class _Ways:
    """The ways that are left open: states that go on, and flows that do not."""

    states: list[State] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)


class Interpreter(Loops):
    """Runs the tree of a script on a State."""

    def source(self, text: str, first_row: int = 1) -> int | None:
        """Run the text of a script, command by command."""
        parser = Parser(text, first_row)
        status: int | None = 0
        while self.flow is None:
            try:
                node = parser.complete()
                if node is None:
                    break
                status = self.run(node)
            except BashError as error:  # of the text itself, or of a text that it expands to
                self.broken.append((error.row, error.message))
                status = 2
                break
        self.comments += parser.comments
        return status

    def run(self, node: Node) -> int | None:
        """Run one command; its exit status, None where that is not known."""
        self.steps += 1
        if self.steps > _STEPS:
            raise TooMuch
        status = self._runners[type(node)](self, node)
        self.state.status = status
        return status

    def sequence(self, node: Sequence) -> int | None:
        """Run commands one after another."""
        status: int | None = 0
        for item, background in node.items:
            if background:
                self.subshell(lambda item=item: self.run(item))  # type: ignore[misc]
                status = 0
            else:
                status = self.run(item)
            if self.flow is not None:
                break
        return status

    def subshell(self, what: Callable[[], int | None]) -> int | None:
        """Run in a copy of the state; variables that it sets are lost, and exit ends only it."""
        before, flow = self.state, self.flow
        self.steps += 20  # a copy of the state takes as long
        self.state = before.copy()
        self.flow = None
        try:
            status = what()
            ended = self._ended()
            if ended is not None:
                status = ended.status
        finally:
            self.state, self.flow = before, flow
        return status

    def _ended(self) -> Flow | None:
        return self.flow if self.flow is not None and self.flow.kind == "exit" else None

    def substitute(self, part: Substitution) -> str:
        """What $(…) prints, without the line ends after it."""
        out: list[str] = []
        before, self.out = self.out, out
        source = part.source.strip()
        file = source[1:].strip() if source.startswith("<") and "\n" not in source else ""
        try:
            if file and file[:1] not in "<(":
                self.write(self.file_text(self.text_of(file, part.row), part.row))
            else:
                self.substituted = self.subshell(lambda: self.source(part.source, part.row))
        finally:
            self.out = before
        text = "".join(out).rstrip("\n")
        if text and not MARKS.sub("", text):
            of_programs = any(unknown.name.startswith("`") for unknown in self.unknowns.of(text))
            if of_programs:
                return self.unknown(f"`{' '.join(source.split())}`", part.row)
        return text

    # Undecided ways

    def ways(self, row: int, source: str, runs: list[Callable[[], int | None]]) -> int | None:
        """Take every one of `runs` from the present state, and go on with what they share."""
        start, found = self.state, _Ways()
        unknown = Unknown(f"the branch `{_short(source)}`", row, cause=self.cause)
        self.branches.append(unknown)
        outs = self.out
        try:
            for run in runs:
                self.state, self.flow = start.copy(), None
                self.out = None if outs is None else []
                run()
                if self.out and outs is not None:
                    outs.append(self.unknowns.mark(unknown))
                if self.flow is None:
                    found.states.append(self.state)
                else:
                    found.flows.append(self.flow)
                    if self.flow.kind in ("break", "continue", "return"):
                        found.states.append(self.state)
        finally:
            self.branches.pop()
            self.out = outs
        going = [flow for flow in found.flows if flow.kind != "exit"]
        if len(found.flows) == len(runs):
            self.flow = going[0] if going else found.flows[0]
        else:
            self.flow = None
            self.may_end = self.may_end or any(f.kind in ("break", "return") for f in going)
        self.state = merged(found.states, lambda: unknown, self.unknowns) if found.states else start
        return None

    def _and_or(self, node: AndOr) -> int | None:
        self.cause = ""
        status = self.run(node.first)
        for operator, right in node.rest:
            if self.flow is not None:
                return status
            if status is None:
                source = self._source_of(node)
                status = self.ways(
                    node.row,
                    source,
                    [lambda right=right: self.run(right), lambda: 0],  # type: ignore[misc]
                )
            elif (status == 0) is (operator == "&&"):
                status = self.run(right)
        return status

    def _source_of(self, node: Node) -> str:
        """A short text for a condition."""
        if isinstance(node, AndOr):
            return self._source_of(node.first)
        if isinstance(node, Brackets):
            return node.source
        if isinstance(node, Command):
            return " ".join(word.source for word in node.words if isinstance(word, Word))
        if isinstance(node, Pipeline):
            return " | ".join(self._source_of(one) for one in node.commands)
        return "a condition"

    def _pipeline(self, node: Pipeline) -> int | None:
        alone = len(node.commands) == 1
        status = self.run(node.commands[0]) if alone else self._piped(node)
        if node.negated:
            return None if status is None else int(status == 0)
        return status

    def _piped(self, node: Pipeline) -> int | None:
        stdin, out = self.stdin, self.out
        status: int | None = 0
        try:
            for number, command in enumerate(node.commands):
                last = number == len(node.commands) - 1
                caught: list[str] = []
                self.out = out if last else caught
                status = self.subshell(lambda command=command: self.run(command))  # type: ignore[misc]
                self.stdin = "".join(caught)
        finally:
            self.stdin, self.out = stdin, out
        return status

    # Compound commands

    def _if(self, node: If) -> int | None:
        return self._clauses(node, 0)

    def _clauses(self, node: If, at: int) -> int | None:
        while at < len(node.clauses):
            clause = node.clauses[at]
            self.cause = ""
            status = self.sequence(clause.condition)
            if self.flow is not None:
                return status
            if status is None:
                return self.ways(
                    clause.row,
                    clause.source,
                    [
                        lambda clause=clause: self.sequence(clause.body),  # type: ignore[misc]
                        lambda at=at: self._clauses(node, at + 1),  # type: ignore[misc]
                    ],
                )
            if status == 0:
                return self.sequence(clause.body)
            at += 1
        return self.sequence(node.otherwise) if node.otherwise is not None else 0

    def _case(self, node: Case) -> int | None:
        text = self.text(node.word)
        before, self.row = self.row, node.row
        text = self.condition_text(text)
        self.row = before
        return self._arms(node, text, 0)

    def _arms(self, node: Case, text: str, at: int) -> int | None:
        while at < len(node.items):
            words = node.items[at][0]
            answers = [self.matches(text, word) for word in words]
            if any(answers):
                return self._arm(node, text, at)
            if None in answers:
                known = self.unknowns.first(text)
                self.cause = known.text() if known is not None else ""
                return self.ways(
                    words[0].row,
                    f"case {node.word.source} in {words[0].source})",
                    [
                        lambda at=at: self._arm(node, text, at),  # type: ignore[misc]
                        lambda at=at: self._arms(node, text, at + 1),  # type: ignore[misc]
                    ],
                )
            at += 1
        return 0

    def _arm(self, node: Case, text: str, at: int) -> int | None:
        status = self.sequence(node.items[at][1])
        while self.flow is None and node.items[at][2] == ";&" and at + 1 < len(node.items):
            at += 1
            status = self.sequence(node.items[at][1])
        if self.flow is None and node.items[at][2] == ";;&":
            return self._arms(node, text, at + 1)
        return status

    def expression(self, word: Word) -> int | str:
        """The value of ((…)), or the mark of the unknown value that it depends on."""
        before, self.row = self.row, word.row
        value = self.number(self.text(word))
        self.row = before
        return value

    def _arithmetic(self, node: ArithCommand) -> int | None:
        value = self.expression(node.word)
        return None if isinstance(value, str) else int(value == 0)

    def _group(self, node: Group) -> int | None:
        return self.redirected(node.redirects, lambda: self.sequence(node.body))

    def _subshell(self, node: Subshell) -> int | None:
        return self.subshell(
            lambda: self.redirected(node.redirects, lambda: self.sequence(node.body))
        )

    def _function(self, node: Function) -> int | None:
        self.state.functions[node.name] = node.body
        return 0

    def _brackets(self, node: Brackets) -> int | None:
        self.row = node.row
        return self.brackets(node.tokens)

    def _simple(self, node: Command) -> int | None:
        return self.simple(node)

    _runners: dict[type, Callable[..., int | None]] = {  # noqa: RUF012
        Command: _simple,
        Pipeline: _pipeline,
        AndOr: _and_or,
        Sequence: sequence,
        If: lambda self, node: self.redirected(node.redirects, lambda: self._if(node)),
        While: lambda self, node: self.redirected(node.redirects, lambda: self.run_while(node)),
        For: lambda self, node: self.redirected(node.redirects, lambda: self.run_for(node)),
        CFor: Loops.run_c_for,
        Case: _case,
        Group: _group,
        Subshell: _subshell,
        Function: _function,
        ArithCommand: _arithmetic,
        Brackets: _brackets,
    }


def _short(source: str) -> str:
    """A condition on one line."""
    text = " ".join(source.split())
    return text if len(text) <= 100 else text[:97] + "..."
