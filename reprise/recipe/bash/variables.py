"""Reading and setting variables, and what a script is taken to find where it sets nothing."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from reprise.recipe.bash.arithmetic import BadArithmetic, calculate
from reprise.recipe.bash.run import TooMuch
from reprise.recipe.bash.state import ArrayValue, Field, State, Variable
from reprise.recipe.bash.unknown import Unknown, Unknowns, has_unknown

__all__ = ["SCHEDULER", "Variables"]

SCHEDULER = re.compile(
    r"(SLURM|PBS|OMPI|PMI|PMIX|LSB|KUBERNETES|VC|MLP|PET)_\w+"
    r"|(WORLD_SIZE|RANK|NODE_RANK|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)"
)
"""Variables that a scheduler sets for each job: a script's default does not hold under it."""

_FOLDERS = ("HOME", "OLDPWD", "TMPDIR")
_OF_BASH = frozenset(
    ("RANDOM", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME", "SRANDOM", "BASHPID", "PPID", "UID",
     "EUID", "USER", "LOGNAME", "HOSTNAME", "HOSTTYPE", "MACHTYPE", "OSTYPE", "BASH_VERSION",
     "BASH", "SHLVL", "LINENO", "PIPESTATUS", "FUNCNAME", "SHELLOPTS", "BASHOPTS", "PATH",
     "TERM", "COLUMNS", "LINES", "_", "$", "!", "-", "BASH_VERSINFO", "BASH_LINENO")
)  # fmt: skip


_MOST_TEXT = 4 << 20


class Variables:
    """The state, and the names of what is not in it."""

    def __init__(self, path: str, supplied: dict[str, str], strict: bool) -> None:
        self.unknowns = Unknowns()
        self.state = State()
        self.path = path
        self.supplied = supplied
        self.strict = strict
        """The caller's variables and arguments are unknown in conditions as well."""
        self.assumed: dict[str, int] = {}
        """Variables of the caller that a condition or a default takes as unset."""
        self.row = 1

    def unknown(self, name: str, row: int, *, absolute: bool = False, unset: bool = False) -> str:
        """The mark of an unknown value."""
        return self.unknowns.mark(Unknown(name, row, absolute=absolute, unset=unset))

    def folder(self) -> str:
        """The working folder, or its mark."""
        return self.state.cwd or self.unknown("$PWD", 0, absolute=True)

    def lookup(self, name: str, row: int) -> str | ArrayValue | None:
        """The value that the script or bash gives `name`; None where it is left to the caller."""
        found = self.state.variables.get(name)
        if found is not None:
            if found.reference and isinstance(found.value, str) and found.value != name:
                return self.lookup(found.value, row)
            return found.value
        if name in self.supplied:
            return self.supplied[name]
        return self._special(name, row)

    def _special(self, name: str, row: int) -> str | ArrayValue | None:
        if name.isdecimal():
            return self._argument(int(name))
        if name in ("#", "?"):
            arguments, status = self.state.arguments, self.state.status
            if name == "#":
                return self.unknown("$#", row) if arguments is None else str(len(arguments))
            return self.unknown("the status of a command", row) if status is None else str(status)
        if name in _FOLDERS or name in _OF_BASH:
            return self.unknown(f"${name}", row, absolute=name in _FOLDERS)
        if name == "PWD":
            return self.folder()
        return {"IFS": " \t\n", "BASH_SOURCE": self.path}.get(name)

    def _argument(self, number: int) -> str | None:
        if number == 0:
            return self.path
        arguments = self.state.arguments
        if arguments is None or number > len(arguments):
            return None
        return arguments[number - 1].text

    def left_open(self, name: str) -> bool:
        """Whether a variable that is not set may well be set where the script runs."""
        if name.isdecimal():
            return self.state.arguments is None
        return self.strict or SCHEDULER.fullmatch(name) is not None

    def is_unset(self, name: str) -> bool:
        """Whether the script itself leaves the variable without a value (unset, no argument)."""
        found = self.state.variables.get(name)
        return found is not None and found.value is None

    def element(self, value: ArrayValue, index: str) -> str | None:
        """One element of an array; None where it has no such element."""
        if has_unknown(index):
            return self.unknowns.mark(self.unknowns.first(index) or Unknown(index, self.row))
        key: int | str = index
        if not value.named:
            number = self.number(index)
            if isinstance(number, str):
                return number
            key = number
            if number < 0:
                key = value.next_index() + number
        wide = next((one for one in value.items.values() if one.loose == "words"), None)
        if wide is not None and not value.named:
            at = next(k for k, one in value.items.items() if one is wide)
            if int(key) >= int(at):
                return wide.text
        found = value.items.get(key)
        return None if found is None else found.text

    def number(self, text: str) -> int | str:
        """An arithmetic expression; the mark of an unknown value where it depends on one."""
        try:
            return calculate(text, self)
        except BadArithmetic as error:
            return self.unknown(f"(({text.strip()})): {error}", self.row)

    # What arithmetic needs

    def value(self, name: str, index: str) -> str:
        """The text of a variable in an expression."""
        found = self.lookup(name, self.row)
        if isinstance(found, ArrayValue):
            return self.element(found, index or "0") or "0"
        if found is None:
            if self.is_unset(name):
                return "0"
            return self.unknown(f"${name}", self.row, unset=True)
        return found or "0"

    def assign(self, name: str, index: str, text: str) -> None:
        """Set a variable from an expression."""
        self.put(name, text, index=index or None)

    # Setting

    def put(
        self,
        name: str,
        text: str,
        row: int | None = None,
        append: bool = False,
        index: str | None = None,
    ) -> None:
        """NAME=text, NAME+=text, NAME[index]=text."""
        if len(text) > _MOST_TEXT:
            raise TooMuch
        row = self.row if row is None else row
        variables = self.state.variables
        found = variables.get(name)
        if found is not None and found.reference and isinstance(found.value, str):
            self.put(found.value, text, row, append, index)
            return
        if name in self.supplied and index is None and has_unknown(text):
            text = self.supplied[name]
        if found is None:
            found = variables[name] = Variable(self.supplied.get(name), row)
            found.exported = name in self.supplied
        if index is not None or isinstance(found.value, ArrayValue):
            self._put_element(found, text, row, append, index or "0")
            return
        before = found.value if isinstance(found.value, str) else ""
        if found.integer:
            added = self.number(text)
            if append and isinstance(added, int):
                total = self.number(f"{before or 0}+({added})")
                added = total
            text = str(added)
        elif append:
            text = before + text
        if found.case:
            text = text.lower() if found.case == "l" else text.upper()
        found.value, found.row = text, row

    def _put_element(self, found: Variable, text: str, row: int, append: bool, index: str) -> None:
        if not isinstance(found.value, ArrayValue):
            first = None if found.value is None else Field(found.value, found.row)
            found.value = ArrayValue({} if first is None else {0: first})
        value = found.value
        key: int | str = index
        if not value.named:
            number = self.number(index)
            if isinstance(number, str):
                value.items[value.next_index()] = Field(number, row, "words")
                return
            key = number if number >= 0 else value.next_index() + number
        before = value.items[key].text if append and key in value.items else ""
        value.items[key] = Field(before + text, row)

    def put_array(
        self, name: str, items: list[tuple[str | None, Field]], row: int, append: bool
    ) -> None:
        """NAME=(…), NAME+=(…); an item has its index where the script writes one."""
        variables = self.state.variables
        found = variables.get(name)
        if found is None:
            found = variables[name] = Variable(None, row)
        named = isinstance(found.value, ArrayValue) and found.value.named
        if append and isinstance(found.value, ArrayValue):
            value = found.value
        elif append and isinstance(found.value, str):
            value = ArrayValue({0: Field(found.value, found.row)})
        else:
            value = ArrayValue(named=named)
        at = 0 if named else value.next_index()
        for index, item in items:
            if named:
                value.items[index if index is not None else item.text] = item
                continue
            if index is not None:
                number = self.number(index)
                at = number if isinstance(number, int) else at
            value.items[at] = item
            at += 1
        found.value, found.row = value, row

    def script_folder(self) -> str:
        """The folder of the script that is read."""
        return str(PurePosixPath(self.path).parent)
