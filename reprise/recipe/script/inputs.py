"""read and mapfile: what a script takes from its input."""

from __future__ import annotations

import re

from reprise.recipe.bash.calls import Calls
from reprise.recipe.bash.grammar.syntax import Command
from reprise.recipe.bash.state import Field
from reprise.recipe.bash.unknown import MARKS, has_unknown

__all__ = ["Inputs"]


class Inputs(Calls):
    """The builtins that read."""

    def _read(self, words: list[Field], node: Command) -> int | None:
        names, array, raw, separator = list[str](), "", False, "\n"
        at = 0
        while at < len(words):
            text = words[at].text
            if not text.startswith("-"):
                names.append(text)
            elif text[-1] in "aptdniuN":
                at += 1
                value = words[at].text if at < len(words) else ""
                array = value if text[-1] == "a" else array
                separator = (value[:1] or "\0") if text[-1] == "d" else separator
            raw = raw or (text.startswith("-") and "r" in text)
            at += 1
        line, status = self._line(separator, node)
        if line is None:
            for name in [array] if array else names or ["REPLY"]:
                self.put(
                    name, self.unknown(f"the input that `read {name}` gets", node.row), node.row
                )
            return None
        self._spread(line if raw else re.sub(r"\\(.)", r"\1", line), names, array, node.row)
        return status

    def _line(self, separator: str, node: Command) -> tuple[str | None, int]:
        """The next line of the input; None where the input is not known."""
        if self.stdin is None:
            return None, 0
        if MARKS.fullmatch(self.stdin.strip()):
            return None, 0
        line, found, self.stdin = self.stdin.partition(separator)
        return line, 0 if found else 1

    def _spread(self, line: str, names: list[str], array: str, row: int) -> None:
        separators = self.separators()
        if not array and not names:
            self.put("REPLY", line, row)
            return
        limit = 0 if array else len(names)
        fields = _split(line, separators, limit)
        if array:
            self.put_array(array, [(None, Field(text, row)) for text in fields], row, False)
            return
        for number, name in enumerate(names):
            self.put(name, fields[number] if number < len(fields) else "", row)

    def _mapfile(self, words: list[Field], node: Command) -> int | None:
        name = next((f.text for f in reversed(words) if not f.text.startswith("-")), "MAPFILE")
        if self.stdin is None or has_unknown(self.stdin):
            mark = self.unknown(f"the input that `mapfile {name}` gets", node.row)
            items = [Field(mark, node.row, "words")]
        else:
            strips = any(field.text == "-t" for field in words)
            rows = self.stdin.splitlines(keepends=not strips)
            items = [Field(row, node.row) for row in rows]
        self.put_array(name, [(None, item) for item in items], node.row, False)
        return 0


def _split(line: str, separators: str, limit: int) -> list[str]:
    """read's fields: the last one takes the rest of the line."""
    blank = "".join(char for char in separators if char in " \t\n")
    hard = [char for char in separators if char not in " \t\n"]
    line = line.strip(blank) if blank else line
    if not separators:
        return [line]
    if hard:
        ends = re.escape("".join(hard))
        around = f"[{re.escape(blank)}]*" if blank else ""
        pattern = f"{around}[{ends}]{around}"
        if blank:
            pattern += f"|[{re.escape(blank)}]+"
    else:
        pattern = f"[{re.escape(blank)}]+"
    fields = re.split(pattern, line, maxsplit=limit - 1 if limit else 0) if limit != 1 else [line]
    if not limit and fields and fields[-1] == "":
        fields.pop()
    return fields
