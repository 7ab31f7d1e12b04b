"""Read an existing launch script: what bash would hand to the trainer, without running anything.

Nothing of a script is executed; `reprise.recipe.bash` evaluates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reprise.core.errors import CannotTell, OperatorError
from reprise.recipe.bash.state import Field
from reprise.recipe.bash.unknown import MARKS, Unknown
from reprise.recipe.config.overrides import Line
from reprise.recipe.script.launch import Launch, launches_of, stranded
from reprise.recipe.script.reading import Reading, read_text
from reprise.recipe.unknowns import NotKnown, placeholder

__all__ = ["Launch", "Script", "read_script"]

_MOST_BYTES = 16 << 20
_MARK = "\U000f0000"


@dataclass(slots=True)
class Script:
    """A launch script: what it starts, and what is wrong with its text.

    `supplied` are the values of `--set` by their names. `strict` says that nothing of the caller
    was taken as unset, because the script starts no trainer otherwise.
    """

    path: Path
    reading: Reading
    launches: list[Launch]
    crlf: bool = False
    strict: bool = False
    supplied: dict[str, str] = field(default_factory=dict)

    def at(self, row: int) -> str:
        """`run.sh:12`."""
        return f"{self.path}:{row}"

    def lines(self, launch: Launch) -> list[Line]:
        """The overrides of a launch, as bash hands them over."""
        return [self.line(word) for word in launch.overrides]

    def dropped(self, launch: Launch) -> list[Line]:
        """Overrides that bash does not hand over: they come after the end of the command."""
        return [self.line(word) for word in stranded(self.reading, launch)]

    def open_lines(self, launch: Launch) -> list[Line]:
        """Overrides that a branch leaves open: each key with an unknown value."""
        found = {}
        for word in launch.open_words:
            for unknown in self.reading.unknowns.of(word.text):
                texts = [one for choice in unknown.choices for one in choice]
                for text in texts:
                    key, equals, _ = text.partition("=")
                    if equals and not MARKS.search(key):
                        line = self.line(Field(f"{key}={word.text}", word.row))
                        found[key.lstrip("+~")] = line
        return list(found.values())

    def line(self, word: Field) -> Line:
        """A word as an override, with its unknown parts by name."""
        table: dict[str, NotKnown] = {}
        text = word.text
        for mark in dict.fromkeys(MARKS.findall(word.text)):
            unknown = self.reading.unknowns.first(mark)
            if unknown is None:
                continue
            name = placeholder(ord(mark) - ord(_MARK))
            table[name] = self.known(unknown)
            text = text.replace(mark, name)
        return Line(text, self.at(word.row), tuple(table.items()))

    def known(self, unknown: Unknown) -> NotKnown:
        """An unknown value of the script as one of the config."""
        where = self.at(unknown.row) if unknown.row else ""
        return NotKnown(unknown.text(), where, absolute=unknown.absolute)

    def shown(self, text: str) -> str:
        """A text with its unknown parts as <name>."""
        return self.reading.shown(text)


def read_script(path: Path, supplied: Mapping[str, str] | None = None) -> Script:
    """Every launch in a bash script; nothing in it is executed.

    `supplied` are variables that the caller has set. Raises OperatorError when the file cannot be
    read, CannotTell when it starts no trainer that can be seen.
    """
    values = dict(supplied or {})
    text = _text(path)
    crlf = "\r\n" in text
    text = text.replace("\r\n", "\n")
    script = Script(path, Reading(), [], crlf, supplied=values)
    for strict in (False, True):
        reading = read_text(text, path, values, strict)
        launches = launches_of(reading)
        if launches or not strict:
            script.reading, script.launches, script.strict = reading, launches, strict
        if launches or reading.too_much:
            break
    if not script.launches:
        raise _no_launch(script)
    return script


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"a file of {path.stat().st_size >> 20} MiB")
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise OperatorError(
            "recipe-script-file.expected-bash-script", str(path), error=error
        ) from error
    return MARKS.sub("\ufffd", text).replace("\0", "")


def _no_launch(script: Script) -> OperatorError:
    reading = script.reading
    if reading.broken:
        row, message = reading.broken[0]
        return OperatorError(
            "recipe-script-syntax.bash-stops-here",
            script.at(row),
            answer=message,
            script_path=script.path,
        )
    found = "found none"
    if reading.too_much:
        found = f"found none: {reading.too_much}"
    elif reading.not_read:
        names = ", ".join(reading.not_read)
        found = f"found none; it runs other scripts that are not at hand: {names}"
    return CannotTell("recipe-script-launch.expected-command-starts", str(script.path), found=found)
