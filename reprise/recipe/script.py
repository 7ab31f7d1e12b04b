"""Read an existing launch script into overrides, and say what is wrong with the script itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.core.nearby import nearest_word
from reprise.recipe.config.overrides import Line
from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.shell import Command, Shell, Word, read_shell

__all__ = ["Script", "judge_script", "read_script"]

_MAIN = re.compile(r"^verl\.(\w+\.)*main_\w+$")
_OVERRIDE = re.compile(r"^(\+\+|[+~])?[A-Za-z_][\w@/]*(\.[\w@]+)*=")
_DOTTED = re.compile(r"^(\+\+|[+~])?[A-Za-z_]\w*(\.\w+)+=")
# Variables that look like settings of verl and are none, with what to set instead.
_NO_VARIABLES = {"GLOBAL_PROFILER_TOOL": "global_profiler.tool"}


@dataclass(slots=True)
class Script:
    """A launch script: the overrides that it passes, those that bash would drop, the rest."""

    path: Path
    lines: list[Line]
    dropped: list[Line]
    launch: Command
    shell: Shell
    config_name: str | None = None
    config_path: str | None = None
    runtime_env: str | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def at(self, row: int) -> str:
        """`run.sh:12`."""
        return f"{self.path}:{row}"

    def engine_line(self) -> list[Line]:
        """model_engine=megatron where only the name of the config says so."""
        told = any(line.text.startswith("model_engine=") for line in self.lines + self.dropped)
        if told or "megatron" not in (self.config_name or ""):
            return []
        return [Line("model_engine=megatron", self.at(self.launch.row))]


def read_script(path: Path) -> Script:
    """The launch of verl in a bash script; nothing in it is executed.

    Raises OperatorError when the file cannot be read, CannotTell when it starts no trainer of
    verl that can be seen.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(
            "recipe-script-file.expected-bash-script", str(path), error=error
        ) from error
    shell = read_shell(text)
    index, after = _find_launch(shell.commands)
    if index is None:
        raise CannotTell("recipe-script-launch.expected-command-runs", str(path))
    command = shell.commands[index]
    script = Script(path, [], [], command, shell)
    script.environment = {**shell.exported, **command.environment}
    script.config_name = _option(after, "--config-name", "-cn")
    script.config_path = _option(after, "--config-path", "-cp")
    script.runtime_env = _option(list(command.words), "--runtime-env")
    script.lines = [Line(word.text, script.at(word.row)) for word in _overrides(after)]
    script.dropped = [
        Line(word.text, script.at(word.row)) for word in _stranded(shell.commands[index + 1 :])
    ]
    return script


def _find_launch(commands: Sequence[Command]) -> tuple[int | None, list[Word]]:
    """Which command starts the trainer, and its words after verl's module."""
    for index, command in enumerate(commands):
        words, module = _launch_words(command)
        if module is not None:
            return index, list(words[module + 1 :])
    return None, []


def _launch_words(command: Command) -> tuple[Sequence[Word], int | None]:
    """The words of a command (or of what it hands to bash -c), and where verl's module stands."""
    for words in (command.words, tuple(_inner(command))):
        for index, word in enumerate(words):
            if _MAIN.match(word.text) or PurePosixPath(word.text).name == "main_ppo.py":
                return words, index
    return (), None


def _inner(command: Command) -> Iterator[Word]:
    texts = [word.text for word in command.words]
    for index, word in enumerate(command.words[2:], 2):
        if texts[index - 1] == "-c" and PurePosixPath(texts[index - 2]).name in ("bash", "sh"):
            try:
                yield from (Word(part, word.row) for part in shlex.split(word.text))
            except ValueError:
                return


def _option(words: list[Word], *names: str) -> str | None:
    for index, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if name in names:
            if equals:
                return value
            return words[index + 1].text if index + 1 < len(words) else None
    return None


def _overrides(words: Sequence[Word]) -> Iterator[Word]:
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.text.startswith("-"):
            skip = "=" not in word.text and word.text in ("--config-name", "--config-path")
        else:
            yield word


def _stranded(commands: Sequence[Command]) -> Iterator[Word]:
    """Words that stand after the launch as commands of their own and look like overrides."""
    for command in commands:
        if command.words and _DOTTED.match(command.words[0].text):
            yield from (word for word in command.words if _OVERRIDE.match(word.text))


def judge_script(report: Report, script: Script, tree: VerlTree) -> None:
    """Add what is wrong with the script as a script."""
    _syntax(report, script)
    _lost(report, script)
    _loose(report, script)
    _config_name(report, script, tree)
    _variables(report, script, tree)
    _files(report, script, tree)
    for name, row in script.shell.unknown.items():
        if name not in ("$PWD", "$HOME", "$USER", "$BASH_SOURCE"):
            report.note("recipe-script-unknown.depends-caller-command", script.at(row), name=name)
    for row in script.shell.undecided:
        report.note("recipe-script-branch.decided-without-running", script.at(row))


def _syntax(report: Report, script: Script) -> None:
    rule = "recipe-script-syntax"
    for row in script.shell.broken:
        report.failed(rule, script.at(row), "this is no bash", "bash -n shows the place")
    report.settle(rule)


def _lost(report: Report, script: Script) -> None:
    rule = "recipe-script-continuation"
    if script.dropped:
        first, last = script.launch.end_row, script.dropped[0].where
        comment = next((row for row in script.shell.comments if row >= first), None)
        because = (
            f"the comment in line {comment} ends the command"
            if comment is not None and comment <= int(last.rsplit(":", 1)[1])
            else f"the command ends in line {first}"
        )
        report.failed(
            rule,
            last,
            f"{because}: bash drops the {len(script.dropped)} options after it and then looks for "
            f"a program named {script.dropped[0].text.split('=')[0]!r} (they are checked here as "
            "meant)",
            "move the comment out of the command, and end every line but the last with a backslash",
        )
    report.settle(rule)


def _loose(report: Report, script: Script) -> None:
    rule = "recipe-script-quoting"
    words = [word for command in (script.launch,) for word in command.words]
    for index, word in enumerate(words):
        if word.loose == "braces":
            report.failed(
                rule,
                script.at(word.row),
                f"{word.text}: bash expands the braces into several words",
                f"'{word.text}'",
            )
        elif word.loose == "brackets":
            split = word.text.count("[") > word.text.count("]") and index + 1 < len(words)
            whole = f"{word.text} {words[index + 1].text}" if split else word.text
            message = (
                f"{word.text}: the list has a blank and is not quoted: bash makes two words of it"
                if split
                else f"{word.text}: an unquoted list is a file pattern to bash, and its inner "
                "quotes are lost"
            )
            fix = f"'{whole}'"
            if split:
                report.failed(rule, script.at(word.row), message, fix)
            else:
                report.warn(rule, script.at(word.row), message, fix)
    report.settle(rule)


def _config_name(report: Report, script: Script, tree: VerlTree) -> None:
    rule = "recipe-script-config-name"
    if script.config_name is not None:
        name = script.config_name.removesuffix(".yaml")
        own = _own_config(script, name)
        known = sorted(path.stem for path in tree.config.glob("*.yaml") if path.stem[0] != "_")
        if not own and name not in known:
            close = nearest_word(name, known)
            report.failed(
                rule,
                script.at(script.launch.row),
                f"--config-name {script.config_name}: this verl has no such config; it has "
                f"{', '.join(known)}",
                "leave --config-path and --config-name out and give model_engine=megatron"
                if "megatron" in name
                else f"--config-name {close or 'ppo_trainer'}",
            )
    report.settle(rule)


def _own_config(script: Script, name: str) -> bool:
    if script.config_path is None:
        return False
    folder = Path(script.config_path)
    beside = folder if folder.is_absolute() else script.path.parent / folder
    return (beside / f"{name}.yaml").is_file()


def _variables(report: Report, script: Script, tree: VerlTree) -> None:
    rule = "recipe-script-variable"
    sources: str | None = None
    for name in script.environment:
        row = script.shell.exported_rows.get(name, script.launch.row)
        if name in _NO_VARIABLES:
            key = _NO_VARIABLES[name]
            report.failed(
                rule,
                script.at(row),
                f"{name} is no variable of verl and changes nothing",
                f"the setting is {key}={script.environment[name]}",
            )
        elif name.startswith("VERL_"):
            sources = sources if sources is not None else _sources(tree)
            if name not in sources:
                report.warn(
                    rule, script.at(row), f"nothing in this verl reads {name}", "leave it out"
                )
    report.settle(rule)


def _sources(tree: VerlTree) -> str:
    return "\n".join(
        path.read_text(encoding="utf-8", errors="replace") for path in tree.package.rglob("*.py")
    )


def _files(report: Report, script: Script, tree: VerlTree) -> None:
    """Sources of verl that the script edits or copies, and that the locked verl does not have."""
    rule = "recipe-script-missing-source"
    for command in script.shell.commands:
        for word in command.words:
            match = re.search(r"(?:^|.*/)verl/((?!verl/)(?:\w+/)+\w+\.py)$", word.text)
            if match is None or (tree.package / match.group(1)).is_file():
                continue
            name = PurePosixPath(match.group(1)).name
            there = sorted(path.relative_to(tree.package) for path in tree.package.rglob(name))
            engine = "workers/engine/megatron" if "megatron" in name else "workers/engine"
            report.failed(
                rule,
                script.at(word.row),
                f"this verl has no verl/{match.group(1)}: an edit of it changes nothing",
                f"it is now verl/{there[0]}" if there else f"that code lies in verl/{engine}/ now",
            )
    report.settle(rule)
