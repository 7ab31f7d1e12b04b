"""What a script has set at one moment, and what two branches leave in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from reprise.recipe.bash.grammar.syntax import Node
from reprise.recipe.bash.unknown import Unknown, Unknowns

__all__ = ["ArrayValue", "Field", "Flow", "Ready", "State", "Variable", "merged"]

_CHOICES = 8


@dataclass(frozen=True, slots=True)
class Field:
    """One word after expansion; `row` is the line that wrote it, `loose` what bash made of it."""

    text: str
    row: int
    loose: str = ""


class Ready(list[Field]):
    """Fields that are split already: what the argument of ${NAME:-…} gives."""


@dataclass(slots=True)
class ArrayValue:
    """An array: keys are numbers, or text where it is associative."""

    items: dict[int | str, Field] = field(default_factory=dict)
    named: bool = False

    def ordered(self) -> list[Field]:
        """The elements, by rising index."""
        if self.named:
            return list(self.items.values())
        return [self.items[key] for key in sorted(self.items, key=int)]

    def next_index(self) -> int:
        """The index that += gives its first element."""
        return max((int(key) for key in self.items), default=-1) + 1


@dataclass(slots=True)
class Variable:
    """A variable's value, the line that set it, and its attributes."""

    value: str | ArrayValue | None
    row: int
    exported: bool = False
    integer: bool = False
    case: str = ""
    reference: bool = False

    def copy(self) -> Variable:
        """A copy whose elements can change by themselves."""
        value = self.value
        if isinstance(value, ArrayValue):
            value = ArrayValue(dict(value.items), value.named)
        return Variable(value, self.row, self.exported, self.integer, self.case, self.reference)


@dataclass(frozen=True, slots=True)
class Flow:
    """Why the commands after this one do not run: exit, return, break or continue."""

    kind: str
    levels: int = 1
    status: int | None = 0


@dataclass(slots=True)
class State:
    """Variables, functions, arguments, folder, and the files that heredocs wrote."""

    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Node] = field(default_factory=dict)
    arguments: list[Field] | None = None
    cwd: str = ""
    files: dict[str, str] = field(default_factory=dict)
    options: set[str] = field(default_factory=set)
    status: int | None = 0

    def copy(self) -> State:
        """A state that can go another way."""
        return State(
            {name: variable.copy() for name, variable in self.variables.items()},
            dict(self.functions),
            list(self.arguments) if self.arguments is not None else None,
            self.cwd,
            dict(self.files),
            set(self.options),
            self.status,
        )

    def child(self, arguments: list[Field]) -> State:
        """What another bash that is started from here has: only what is exported."""
        variables = {
            name: variable.copy()
            for name, variable in self.variables.items()
            if variable.exported and isinstance(variable.value, str)
        }
        return State(variables, {}, arguments, self.cwd, dict(self.files))


def merged(states: list[State], why: Callable[[], Unknown], unknowns: Unknowns) -> State:
    """The state after one of several branches, which is not known: differences are unknown."""
    first = states[0].copy()
    if len(states) == 1:
        return first
    names = dict.fromkeys(name for state in states for name in state.variables)
    for name in names:
        found = [state.variables.get(name) for state in states]
        if all(_same(found[0], other) for other in found[1:]):
            continue
        first.variables[name] = _joined(found, why(), unknowns)
    for state in states[1:]:
        if state.cwd != first.cwd:
            first.cwd = unknowns.mark(Unknown("the working folder", why().row, absolute=True))
        if state.arguments != first.arguments:
            first.arguments = None
        first.functions = state.functions | first.functions
        first.files = {k: v for k, v in first.files.items() if state.files.get(k) == v}
    first.status = None
    return first


def _same(one: Variable | None, other: Variable | None) -> bool:
    if one is None or other is None:
        return one is other
    return _plain(one.value) == _plain(other.value) and one.exported == other.exported


def _plain(value: str | ArrayValue | None) -> object:
    if isinstance(value, ArrayValue):
        return [(key, field.text) for key, field in value.items.items()]
    return value


def _joined(found: list[Variable | None], why: Unknown, unknowns: Unknowns) -> Variable:
    """One variable for several possible ones."""
    there = [variable for variable in found if variable is not None]
    exported = any(variable.exported for variable in there)
    arrays = [variable.value for variable in there if isinstance(variable.value, ArrayValue)]
    row = there[0].row
    if arrays and not any(isinstance(variable.value, str) for variable in there):
        lists = [
            variable.value.ordered()
            if variable is not None and isinstance(variable.value, ArrayValue)
            else []
            for variable in found
        ]
        joined = _joined_lists(lists, why, unknowns)
        return Variable(ArrayValue(dict(enumerate(joined))), row, exported)
    texts = [
        variable.value if variable is not None and isinstance(variable.value, str) else ""
        for variable in found
    ]
    choices = tuple(dict.fromkeys((text,) for text in texts))[:_CHOICES]
    mark = unknowns.mark(replace(why, choices=choices))
    return Variable(mark, row, exported)


def _joined_lists(lists: list[list[Field]], why: Unknown, unknowns: Unknowns) -> list[Field]:
    """What the lists begin and end with alike, and an unknown number of words between."""
    texts = [[field.text for field in one] for one in lists]
    shortest = min(len(one) for one in texts)
    head = 0
    while head < shortest and all(one[head] == texts[0][head] for one in texts):
        head += 1
    tail = 0
    while tail < shortest - head and all(one[-1 - tail] == texts[0][-1 - tail] for one in texts):
        tail += 1
    middles = tuple(dict.fromkeys(tuple(one[head : len(one) - tail]) for one in texts))[:_CHOICES]
    row = next((one[head].row for one in lists if len(one) > head), why.row)
    unknown = replace(why, choices=middles)
    middle = Field(unknowns.mark(unknown), row, "words")
    first = lists[0]
    return [*first[:head], middle, *first[len(first) - tail :]]
