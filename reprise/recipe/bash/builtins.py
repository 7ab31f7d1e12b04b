"""Builtins of bash."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from reprise.recipe.bash.grammar.lexer import _DOLLAR_ESCAPE, _unescaped
from reprise.recipe.bash.grammar.printing import formatted
from reprise.recipe.bash.grammar.syntax import Assign, Command
from reprise.recipe.bash.state import ArrayValue, Field, Flow, Variable
from reprise.recipe.script.inputs import Inputs

__all__ = ["Builtins"]

_Taker = Callable[["Builtins", list[Field], Command], int | None]
_QUIET = ("set", "shopt", "trap", "ulimit", "umask", "wait", "disown", "jobs", "hash", "alias",
          "unalias", "bind", "enable", "fg", "bg", "times", "history", "complete", "compgen",
          "compopt", "kill", "suspend", "logout", "dirs", "caller", "fc", "help")  # fmt: skip


class Builtins(Inputs):
    """What each builtin does to the state."""

    def builtin(self, name: str) -> Callable[[list[Field], Command], int | None] | None:
        """The function of a builtin, None for a program."""
        taker = _BUILTINS.get(name)
        return None if taker is None else lambda words, node: taker(self, words, node)

    def declare(self, node: Command, name: str) -> int | None:
        """declare, local, export, readonly."""
        options, self.row = set[str](), node.row
        for item in node.words[1:]:
            if isinstance(item, Assign):
                self._declared(item.name, name, options, item.row, True)
                self.set(item)
                continue
            for field in self.expand(item):
                text = field.text
                if re.fullmatch(r"[-+][a-zA-Z]+", text):
                    options |= set(text[1:]) if text[0] == "-" else {"+" + c for c in text[1:]}
                    continue
                base, equals, value = text.partition("=")
                if not re.fullmatch(r"[A-Za-z_]\w*", base):
                    continue
                self._declared(base, name, options, field.row, bool(equals))
                if equals:
                    self.put(base, value, field.row)
        return 0

    def _declared(self, name: str, word: str, options: set[str], row: int, assigned: bool) -> None:
        variables = self.state.variables
        if "f" in options or "p" in options:
            return
        local = word == "local" or (word in ("declare", "typeset") and self.in_function > 0)
        if local and "g" not in options and name not in self.locals:
            old = variables.get(name)
            self.locals[name] = old.copy() if old is not None else None
            variables[name] = Variable(None, row)
            variables[name].exported = old is not None and old.exported
        found = variables.get(name)
        if found is None:
            supplied = self.supplied.get(name)
            if word == "export" and supplied is None and not assigned:
                return  # the caller's, if it has one
            found = variables[name] = Variable(supplied, row)
        if (word == "export" or "x" in options) and "n" not in options:
            found.exported = True
        if "A" in options and not isinstance(found.value, ArrayValue):
            found.value = ArrayValue(named=True)
        elif "a" in options and not isinstance(found.value, ArrayValue):
            found.value = ArrayValue()
        found.integer = found.integer or "i" in options
        found.reference = found.reference or ("n" in options and word != "export")
        found.case = "l" if "l" in options else "u" if "u" in options else found.case

    def _echo(self, words: list[Field], node: Command) -> int | None:
        texts, newline, escapes = [field.text for field in words], "\n", False
        while texts and re.fullmatch(r"-[neE]+", texts[0]):
            newline = "" if "n" in texts[0] else newline
            escapes = "e" in texts[0] or escapes
            texts = texts[1:]
        text = " ".join(texts)
        if escapes:
            text = _DOLLAR_ESCAPE.sub(_unescaped, text)
        self.write(text + newline)
        return 0

    def _printf(self, words: list[Field], node: Command) -> int | None:
        texts = [field.text for field in words]
        target = ""
        if texts[:1] == ["-v"] and len(texts) > 1:
            target, texts = texts[1], texts[2:]
        if texts[:1] == ["--"]:
            texts = texts[1:]
        text = formatted(texts[0], texts[1:]) if texts else ""
        if text is None:
            text = self.unknown(f"`printf {self.unknowns.shown(texts[0])}`", node.row)
        if target:
            base, _, index = target.partition("[")
            self.put(base, text, node.row, index=index.rstrip("]") or None)
        else:
            self.write(text)
        return 0

    def _test(self, words: list[Field], node: Command) -> int | None:
        return self.test(words)

    def _bracket(self, words: list[Field], node: Command) -> int | None:
        if not words or words[-1].text != "]":
            return 2
        return self.test(words[:-1])

    def _cd(self, words: list[Field], node: Command) -> int | None:
        texts = [field.text for field in words if field.text not in ("-P", "-L", "--", "-")]
        if len(words) == 1 and words[0].text == "-":
            self.state.cwd = self.unknown("$OLDPWD", node.row, absolute=True)
        elif not texts:
            self.state.cwd = str(self.lookup("HOME", node.row))
        else:
            self.state.cwd = self._folder(texts[0], node.row)
        # That the folder is there is taken for granted: without it nothing after is as meant.
        return 0

    def _folder(self, name: str, row: int) -> str:
        """The folder that cd goes to: absolute whatever its name is."""
        first = self.unknowns.first(name[:1])
        if first is not None and not first.absolute:
            shown = self.unknowns.shown(name)
            return self.unknown(f"the folder {shown}", row, absolute=True)
        if first is not None:
            return posixpath.normpath(name)
        return self.place(name)

    def _pwd(self, words: list[Field], node: Command) -> int | None:
        self.write(self.folder() + "\n")
        return 0

    def _exit(self, words: list[Field], node: Command) -> int | None:
        status = int(words[0].text) if words and words[0].text.isdecimal() else 0
        self.flow = Flow("exit", status=status)
        return status

    def _return(self, words: list[Field], node: Command) -> int | None:
        value = words[0].text if words else ""
        status = int(value) if value.isdecimal() else (None if words else self.state.status)
        self.flow = Flow("return", status=status)
        return status

    def _break(self, words: list[Field], node: Command) -> int | None:
        self.flow = Flow("break", self._levels(words))
        return 0

    def _continue(self, words: list[Field], node: Command) -> int | None:
        self.flow = Flow("continue", self._levels(words))
        return 0

    def _levels(self, words: list[Field]) -> int:
        return int(words[0].text) if words and words[0].text.isdecimal() else 1

    def _shift(self, words: list[Field], node: Command) -> int | None:
        count, arguments = self._levels(words), self.state.arguments
        if arguments is None:
            return None
        if count > len(arguments):
            return 1
        self.state.arguments = arguments[count:]
        return 0

    def _set(self, words: list[Field], node: Command) -> int | None:
        names = {"a": "allexport", "f": "noglob", "u": "nounset", "e": "errexit"}
        at = 0
        while at < len(words):
            text = words[at].text
            at += 1
            if text == "--" or text[:1] not in ("-", "+"):
                self.state.arguments = words[at:] if text == "--" else words[at - 1 :]
                break
            change = self.state.options.add if text[0] == "-" else self.state.options.discard
            for char in text[1:]:
                if char == "o" and at < len(words):
                    change(words[at].text)
                    at += 1
                elif char in names:
                    change(names[char])
        return 0

    def _unset(self, words: list[Field], node: Command) -> int | None:
        for field in words:
            base, bracket, index = field.text.partition("[")
            if field.text.startswith("-"):
                continue
            if bracket:
                found = self.state.variables.get(base)
                if found is not None and isinstance(found.value, ArrayValue):
                    key = index.rstrip("]")
                    found.value.items.pop(int(key) if key.isdecimal() else key, None)
                continue
            self.state.functions.pop(base, None)
            self.state.variables[base] = Variable(None, node.row)
        return 0

    def _eval(self, words: list[Field], node: Command) -> int | None:
        text = " ".join(field.text for field in words)
        row = words[0].row if words else node.row
        self.depth += 1
        try:
            return self.source(text, row) if self.depth < 60 else None
        finally:
            self.depth -= 1

    def _source(self, words: list[Field], node: Command) -> int | None:
        if not words:
            return 2
        name = words[0].text
        text = self.script_text(name)
        if text is None or self.depth >= 60:
            self.not_read.setdefault(self.unknowns.shown(name), node.row)
            return None
        arguments, path = self.state.arguments, self.path
        if len(words) > 1:
            self.state.arguments = words[1:]
        self.depth += 1
        try:
            status = self.source(text)
        finally:
            self.depth -= 1
            self.path = path
            if len(words) > 1:
                self.state.arguments = arguments
        if self.flow is not None and self.flow.kind == "return":
            status, self.flow = self.flow.status, None
        return status

    def _exec(self, words: list[Field], node: Command) -> int | None:
        words = words[1:] if words and words[0].text in ("-a", "-l", "-c") else words
        if not words:
            return 0
        status = self.program(words, node)
        self.flow = Flow("exit", status=status)
        return status

    def _command(self, words: list[Field], node: Command) -> int | None:
        if not words:
            return 0
        if words[0].text in ("-v", "-V"):
            name = words[1].text if len(words) > 1 else ""
            if name in self.state.functions or name in _BUILTINS:
                self.write(name + "\n")
                return 0
            self.write(self.unknown(f"`command -v {self.unknowns.shown(name)}`", node.row))
            return None
        words = words[1:] if words[0].text in ("-p", "--") else words
        taker = self.builtin(words[0].text)
        return taker(words[1:], node) if taker is not None else self.program(words, node)

    def _let(self, words: list[Field], node: Command) -> int | None:
        value: int | str = 0
        self.row = node.row
        for field in words:
            value = self.number(field.text)
        return None if isinstance(value, str) else int(value == 0)

    def _none(self, words: list[Field], node: Command) -> int | None:
        return 0

    def _false(self, words: list[Field], node: Command) -> int | None:
        return 1

    def _unclear(self, words: list[Field], node: Command) -> int | None:
        return None

    def _builtin(self, words: list[Field], node: Command) -> int | None:
        taker = self.builtin(words[0].text) if words else None
        return taker(words[1:], node) if taker is not None else 1


_BUILTINS: dict[str, _Taker] = {
    "echo": Builtins._echo, "printf": Builtins._printf, "test": Builtins._test,
    "[": Builtins._bracket, "cd": Builtins._cd, "pushd": Builtins._cd, "popd": Builtins._unclear,
    "pwd": Builtins._pwd, "exit": Builtins._exit, "return": Builtins._return,
    "break": Builtins._break, "continue": Builtins._continue, "shift": Builtins._shift,
    "unset": Builtins._unset, "eval": Builtins._eval, "source": Builtins._source,
    ".": Builtins._source, "exec": Builtins._exec, "command": Builtins._command,
    "builtin": Builtins._builtin, "let": Builtins._let, "read": Builtins._read,
    "mapfile": Builtins._mapfile, "readarray": Builtins._mapfile, ":": Builtins._none,
    "true": Builtins._none, "false": Builtins._false, "getopts": Builtins._unclear,
    "type": Builtins._unclear, "sleep": Builtins._none,
    **dict.fromkeys(_QUIET, Builtins._none), "set": Builtins._set,
}  # fmt: skip
