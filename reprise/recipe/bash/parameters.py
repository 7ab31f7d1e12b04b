"""$NAME and ${…} in all their forms."""

from __future__ import annotations

import shlex

from reprise.recipe.bash import pattern as patterns
from reprise.recipe.bash.grammar.syntax import Lit, Param, Word
from reprise.recipe.bash.shell import Shell
from reprise.recipe.bash.state import ArrayValue, Field, Flow, Ready
from reprise.recipe.bash.unknown import MARKS, Unknown, has_unknown
from reprise.recipe.bash.variables import Variables

__all__ = ["Parameters"]


class Parameters(Variables, Shell):
    """Values of parameters. What runs a command substitution is the interpreter."""

    flow: Flow | None = None

    def parameter(self, part: Param) -> str | list[Field]:
        """Text, or several words for "$@" and "${A[@]}"."""
        name, index = part.name, part.index
        if part.prefix == "!":
            return self._indirect(part)
        several = self._several(part)
        if several is not None:
            return self._of_several(part, several)
        if part.prefix == "#":
            value = self._scalar(name, index, part)
            value = "" if value is None else value
            return self._first(value) if has_unknown(value) else str(len(value))
        value = self._scalar(name, index, part)
        if part.operator in (":-", "-", ":=", "=", ":?", "?", ":+", "+"):
            return self._default(part, value)
        if value is None:
            value = self._left_to_caller(part)
        return self._changed(part, value)

    def _several(self, part: Param) -> list[Field] | None:
        """The elements that @ or * stands for; None for a parameter of one value."""
        if part.name in ("@", "*"):
            if self.state.arguments is None:
                return [Field(self.unknown("the script's arguments", part.row), part.row, "words")]
            return list(self.state.arguments)
        if part.index is None or part.index.fixed() not in ("@", "*"):
            return None
        value = self.lookup(part.name, part.row)
        if isinstance(value, ArrayValue):
            return value.ordered()
        if isinstance(value, str):
            found = self.state.variables.get(part.name)
            row = found.row if found is not None else part.row
            wide = "words" if MARKS.fullmatch(value) else ""
            return [Field(value, row, wide)]
        return []

    def _of_several(self, part: Param, fields: list[Field]) -> str | list[Field]:
        star = part.name == "*" or (part.index is not None and part.index.fixed() == "*")
        if part.prefix == "#":
            wide = next((field for field in fields if field.loose == "words"), None)
            return str(len(fields)) if wide is None else self._first(wide.text)
        operator = part.operator
        if operator == ":":
            fields = self._slice_of(part, fields)
        elif operator in (":-", "-", ":+", "+", ":=", "=", ":?", "?"):
            filled = bool(fields) and (operator[0] != ":" or any(f.text for f in fields))
            if operator.endswith("+"):
                return self._argument_fields(part) if filled else []
            if not filled:
                return self._argument_fields(part)
        elif operator:
            fields = [
                Field(self._changed(part, field.text), field.row, field.loose) for field in fields
            ]
        if star and part.quoted:
            separators = self.lookup("IFS", part.row)
            glue = separators[:1] if isinstance(separators, str) else " "
            return glue.join(field.text for field in fields)
        return fields

    def _argument_fields(self, part: Param) -> str | list[Field]:
        argument = part.argument
        if argument is None:
            return ""
        if part.quoted:
            inner = [p for p in argument.parts if not isinstance(p, Lit) or p.text]
            if len(inner) == 1 and isinstance(inner[0], Param):
                return self.parameter(inner[0])
            return self.text(argument)
        return Ready(self.fields([argument]))

    def _slice_of(self, part: Param, fields: list[Field]) -> list[Field]:
        start, length = self._bounds(part)
        if isinstance(start, str) or isinstance(length, str):
            mark = start if isinstance(start, str) else str(length)
            return [Field(mark, part.row, "words")]
        if part.name in ("@", "*"):
            fields = [Field(self.path, part.row), *fields]
        if start < 0:
            start = max(len(fields) + start, 0)
        end = len(fields) if length is None else start + length
        return fields[start:end]

    def _bounds(self, part: Param) -> tuple[int | str, int | str | None]:
        text = self.text(part.argument) if part.argument is not None else ""
        depth, at = 0, len(text)
        for place, char in enumerate(text):
            depth += (char in "(?") - (char == ")")
            if char == ":" and depth <= 0:
                at = place
                break
            if char == ":" and depth:
                depth -= 1
        start = self.number(text[:at])
        length = self.number(text[at + 1 :]) if at < len(text) else None
        return start, length

    def _scalar(self, name: str, index: Word | None, part: Param) -> str | None:
        """The value of one variable or element, marks and all; None where it is unset."""
        value = self.lookup(name, part.row)
        if isinstance(value, ArrayValue):
            before, self.row = self.row, part.row
            found = self.element(value, self.text(index) if index is not None else "0")
            self.row = before
            return found
        if value is not None and index is not None and self.text(index) not in ("0", ""):
            return value if has_unknown(value) else None
        return value

    def _left_to_caller(self, part: Param) -> str:
        """What an unset parameter is: empty where the script unset it, else unknown by name."""
        name = part.name
        known = self.state.variables.get(name)
        if known is not None and (known.value is None or isinstance(known.value, ArrayValue)):
            return ""
        if name.isdecimal() and self.state.arguments is not None and self.in_function:
            return ""
        return self.unknown(f"${name}", part.row, unset=True)

    in_function: int = 0

    def _default(self, part: Param, value: str | None) -> str | list[Field]:
        operator = part.operator
        colon = operator[0] == ":"
        if value is None and not self.is_unset(part.name) and part.index is None:
            if self.left_open(part.name):
                return self._open_default(part)
            if not part.name.isdecimal() or not self.in_function:
                self.assumed.setdefault(f"${part.name}", part.row)
        elif value is not None and colon and self._may_be_empty(value):
            return self._first(value)
        filled = value is not None and (bool(value) or not colon)
        if operator.endswith("+"):
            return self._argument_fields(part) if filled else ""
        return value if filled and value is not None else self._instead(part)

    def _instead(self, part: Param) -> str | list[Field]:
        """The argument of :-, := or :? in the place of a value."""
        if part.operator.endswith("?"):
            self.flow = self.flow or Flow("exit", status=1)
            return ""
        found = self._argument_fields(part)
        if not part.operator.endswith("="):
            return found
        text = found if isinstance(found, str) else " ".join(field.text for field in found)
        self.put(part.name, text, part.row)
        return text

    def _open_default(self, part: Param) -> str:
        """A default that holds only where a scheduler or a caller sets nothing."""
        if part.operator.endswith("?") or part.argument is None:
            return self.unknown(f"${part.name}", part.row)
        other = self.text(part.argument)
        if part.operator.endswith("+"):
            other = ""
        if self.strict and not part.name.isdecimal() and not part.operator.endswith("+"):
            return other
        unknown = Unknown(f"${part.name}", part.row, choices=((other,),))
        return self.unknowns.mark(unknown)

    def _may_be_empty(self, value: str) -> bool:
        """Whether a value with unknown parts may be empty."""
        if not has_unknown(value) or MARKS.sub("", value):
            return False
        return not any(unknown.absolute for unknown in self.unknowns.of(value))

    def _first(self, text: str) -> str:
        match = MARKS.search(text)
        return match.group() if match else text

    def _changed(self, part: Param, value: str) -> str:
        """${NAME#…}, ${NAME/…}, ${NAME:…}, ${NAME^^}, ${NAME@Q}."""
        operator = part.operator
        if not operator:
            return value
        if operator == ":":
            return self._substring(part, value)
        if operator[0] == "@":
            return self._transformed(operator[1], value)
        return self._patterned(part, value)

    def _patterned(self, part: Param, value: str) -> str:
        """The forms with a pattern."""
        operator = part.operator
        pieces = self.pieces(part.argument) if part.argument is not None else []
        if has_unknown("".join(text for text, _ in pieces)):
            return self._part_of(part)
        if operator[0] in "#%":
            return self._removed(part, value, pieces)
        if operator[0] == "/":
            new = self.text(part.second) if part.second is not None else ""
            unknown = has_unknown(value)
            return self._part_of(part) if unknown else patterns.replace(
                value, pieces, new, operator
            )  # fmt: skip
        return patterns.with_case(value, pieces, operator)

    def _part_of(self, part: Param) -> str:
        """What a form of ${…} makes of an unknown value: unknown by the whole form."""
        return self.unknown(part.source, part.row)

    def _removed(self, part: Param, value: str, pieces: list[tuple[str, bool]]) -> str:
        """A prefix or suffix less, where unknown parts do not decide how much."""
        operator = part.operator
        left = patterns.remove(value, pieces, operator)
        if not has_unknown(value):
            return left
        gone = value[: len(value) - len(left)] if operator[0] == "#" else value[len(left) :]
        if len(operator) == 1 and gone and not has_unknown(gone):
            return left
        if len(operator) == 2 and has_unknown(gone) and not has_unknown(left):
            return left
        return self._part_of(part)

    def _substring(self, part: Param, value: str) -> str:
        start, length = self._bounds(part)
        for bound in (start, length):
            if isinstance(bound, str):
                return bound
        if has_unknown(value):
            return self._part_of(part)
        assert isinstance(start, int)
        assert not isinstance(length, str)
        if start < 0:
            start += len(value)
            if start < 0:
                return ""
        end = len(value) if length is None else (start + length if length >= 0 else length)
        return value[start:] if length is None else value[start:end]

    def _transformed(self, kind: str, value: str) -> str:
        if kind == "Q":
            return shlex.quote(value) if not value.isalnum() else f"'{value}'"
        changes = {"U": value.upper(), "L": value.lower(), "u": value[:1].upper() + value[1:]}
        return changes.get(kind, value)

    def _indirect(self, part: Param) -> str | list[Field]:
        """${!NAME}, ${!NAME[@]}, ${!PREFIX@}."""
        if part.operator in ("@", "*"):
            names = sorted(name for name in self.state.variables if name.startswith(part.name))
            return [Field(name, part.row) for name in names]
        if part.index is not None and part.index.fixed() in ("@", "*"):
            value = self.lookup(part.name, part.row)
            keys = [str(key) for key in value.items] if isinstance(value, ArrayValue) else []
            if part.quoted and part.index.fixed() == "*":
                return " ".join(keys)
            return [Field(key, part.row) for key in keys]
        name = self._scalar(part.name, part.index, part)
        if name is None or has_unknown(name):
            return self._first(name or "") or self.unknown(f"${{!{part.name}}}", part.row)
        base, bracket, rest = name.partition("[")
        index = Word.literal(rest.rstrip("]"), part.row) if bracket else None
        other = Param(base, part.quoted, part.row, part.source, part.operator, part.argument,
                      part.second, index)  # fmt: skip
        return self.parameter(other)
