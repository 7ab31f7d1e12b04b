"""Loops: rounds that are known are run, others are left open as a branch is."""

from __future__ import annotations

from reprise.recipe.bash.builtins import Builtins
from reprise.recipe.bash.calls import Calls
from reprise.recipe.bash.grammar.syntax import CFor, For, Sequence, While
from reprise.recipe.bash.run import TooMuch
from reprise.recipe.bash.state import Field, Flow
from reprise.recipe.bash.unknown import MARKS

__all__ = ["Loops"]

_ROUNDS = 20_000


class Loops(Builtins, Calls):
    """Runs for, while and until."""

    def run_for(self, node: For) -> int | None:
        """for NAME in words."""
        if node.words is None:
            arguments = self.state.arguments
            fields = arguments or []
            if arguments is None:
                fields = [
                    Field(self.unknown("the script's arguments", node.row), node.row, "words")
                ]
        else:
            fields = self.fields(node.words)
        source = f"for {node.name}"
        for number, one in enumerate(fields):
            if number >= _ROUNDS:
                raise TooMuch
            several = one.loose == "words" or (
                MARKS.fullmatch(one.text) is not None and node.words is not None
            )
            if several:
                self._unknown_round(node, one, source)
            else:
                self.put(node.name, one.text, node.row)
                self.sequence(node.body)
            if self._loop_ends():
                break
        return None if self.state.status is None else 0

    def _unknown_round(self, node: For, one: Field, source: str) -> None:
        """A round for a number of values that is not known."""
        known = self.unknowns.first(one.text)
        self.cause = known.text() if known is not None else ""

        def once() -> int | None:
            self.put(node.name, one.text, node.row)
            status = self.sequence(node.body)
            self._loop_ends()
            return status

        self.ways(node.row, source, [once, lambda: 0])

    def _loop_ends(self) -> bool:
        """Whether the loop is over after this round; takes break and continue."""
        flow = self.flow
        if flow is None:
            ends = self.may_end
            self.may_end = False
            return ends
        if flow.kind in ("break", "continue"):
            self.flow = Flow(flow.kind, flow.levels - 1) if flow.levels > 1 else None
            return flow.kind == "break" or flow.levels > 1
        return True

    def run_while(self, node: While) -> int | None:
        """while and until."""
        rounds = 0
        while True:
            self.cause = ""
            status = self.sequence(node.condition)
            if self.flow is not None:
                return status
            if status is None:
                self._once(node)
                return None
            if (status == 0) is node.until:
                return 0
            self.sequence(node.body)
            if self._loop_ends():
                return 0
            rounds += 1
            if rounds >= _ROUNDS or self._waits(node, rounds):
                return None

    def _waits(self, node: While, rounds: int) -> bool:
        """A loop without an end of its own (while true) is left after three rounds."""
        return rounds >= 3 and node.source in ("true", ":", "[ 1 ]", "[[ 1 ]]")

    def _once(self, node: While) -> None:
        def once() -> int | None:
            status = self.sequence(node.body)
            self._loop_ends()
            return status

        word = "until" if node.until else "while"
        self.ways(node.row, f"{word} {node.source}", [once, lambda: 0])

    def run_c_for(self, node: CFor) -> int | None:
        """for ((first; condition; step))."""
        first, condition, step = node.parts
        self.expression(first)
        for _ in range(_ROUNDS):
            value = self.expression(condition) if condition.parts else 1
            if isinstance(value, str):
                self.ways(node.row, "for ((…))", [lambda: self._body(node.body), lambda: 0])
                return None
            if value == 0:
                return 0
            self.sequence(node.body)
            if self._loop_ends():
                return 0
            self.expression(step)
        raise TooMuch

    def _body(self, node: Sequence) -> int | None:
        status = self.sequence(node)
        self._loop_ends()
        return status
