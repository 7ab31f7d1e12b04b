"""What is wrong with a launch script as a script."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePosixPath

from reprise.core.findings import Report
from reprise.core.nearby import nearest_word
from reprise.recipe.bash.state import Field
from reprise.recipe.bash.unknown import has_unknown
from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.rules.places import is_secret, masked
from reprise.recipe.script import Script
from reprise.recipe.script.launch import Launch

__all__ = ["judge_launch", "judge_script"]

# Variables that look like settings of verl and are none, with what to set instead.
_NO_VARIABLES = {"GLOBAL_PROFILER_TOOL": "global_profiler.tool"}
_RANGE = re.compile(r"\{[^{}]*(,|\.\.)[^{}]*\}")


def judge_script(report: Report, script: Script, tree: VerlTree) -> None:
    """Add what is wrong with the text of the script, whatever it starts."""
    _syntax(report, script)
    _endings(report, script)
    _secrets(report, script)
    _files(report, script, tree)
    _assumptions(report, script)


def judge_launch(report: Report, script: Script, launch: Launch, tree: VerlTree) -> None:
    """Add what is wrong with one launch as a command."""
    _lost(report, script, launch)
    _loose(report, script, launch)
    _dashes(report, script, launch)
    _variables(report, script, launch, tree)
    _nodes(report, script, launch)
    _open(report, script, launch)


def _syntax(report: Report, script: Script) -> None:
    rule = "recipe-script-syntax"
    for row, message in script.reading.broken:
        report.failed(
            rule,
            script.at(row),
            f"bash stops here: {message}",
            f"bash -n {script.path} shows the place",
        )
    report.settle(rule)


def _endings(report: Report, script: Script) -> None:
    rule = "recipe-script-line-ends"
    if script.crlf:
        report.failed(
            rule,
            str(script.path),
            "the lines end with CR LF: bash takes each CR as part of the last word of its line, "
            "and a backslash before it joins no lines (the script is read here as if it had LF)",
            f"sed -i 's/\\r$//' {script.path}",
        )
    report.settle(rule)


def _secrets(report: Report, script: Script) -> None:
    """Credentials that the script exports or hands over as text."""
    rule = "recipe-script-secret"
    seen = set()
    for launch in script.launches:
        for name, value in launch.environment.items():
            if name in seen or has_unknown(value) or not is_secret(name, value):
                continue
            seen.add(name)
            report.failed(
                rule,
                script.at(launch.rows.get(name, launch.row)),
                f"{name}={masked(value)}: a credential in the script; whoever reads the file or "
                "the job's environment has it",
                f"remove it from the script, and export {name} where the job is started",
            )
    report.settle(rule)


def _lost(report: Report, script: Script, launch: Launch) -> None:
    rule = "recipe-script-continuation"
    dropped = script.dropped(launch)
    if dropped:
        first, last = launch.run.end_row, dropped[0].where
        row = int(last.rsplit(":", 1)[1])
        comment = next((one for one in script.reading.comments if first <= one <= row), None)
        because = (
            f"the comment in line {comment} ends the command"
            if comment is not None
            else f"the command ends in line {first}"
        )
        report.failed(
            rule,
            last,
            f"{because}: bash drops the {len(dropped)} options after it and then looks for "
            f"a program named {dropped[0].text.split('=')[0]!r} (the options are checked here as "
            "intended)",
            "move the comment out of the command, and end every line but the last with a backslash",
        )
    report.settle(rule)


def _loose(report: Report, script: Script, launch: Launch) -> None:
    rule = "recipe-script-quoting"
    words = launch.words
    reported = set()
    for index, word in enumerate(words):
        text = script.shown(word.text)
        if word.loose == "braces":
            key = text.partition("=")[0]
            if "=" not in text or (key, word.row) in reported:
                continue
            reported.add((key, word.row))
            report.failed(
                rule,
                script.at(word.row),
                f"bash expands the braces in the value of {key} into several words, the first of "
                f"them {text}",
                f"put the whole option into single quotes: '{key}=…'",
            )
        elif word.loose == "brackets":
            _brackets(report, script, word, words[index + 1 : index + 2])
    report.settle(rule)


def _brackets(report: Report, script: Script, word: Field, following: list[Field]) -> None:
    rule, text = "recipe-script-quoting", script.shown(word.text)
    if text.count("[") > text.count("]") and following:
        report.failed(
            rule,
            script.at(word.row),
            f"{text}: the list has a blank and is not quoted: bash makes two words of it",
            f"'{text} {script.shown(following[0].text)}'",
        )
    elif text.count("[") == text.count("]"):
        report.warn(
            rule,
            script.at(word.row),
            f"{text}: an unquoted list is a file pattern to bash, and bash removes its inner "
            "quotes",
            f"'{text}'",
        )


def _dashes(report: Report, script: Script, launch: Launch) -> None:
    rule = "recipe-script-dash"
    for word in launch.dashes:
        code = f"U+{ord(word.text[0]):04X}"
        report.failed(
            rule,
            script.at(word.row),
            f"{word.text}: the first character is {code}, not a hyphen: Python takes the word for "
            "the name of a file",
            f"write {'-' + word.text[1:]}",
        )
    report.settle(rule)


def judge_config_name(report: Report, script: Script, launch: Launch, known: list[str]) -> None:
    """Add an error for a --config-name that is not among the `known` names."""
    rule = "recipe-script-config-name"
    if launch.config_name is not None:
        name = launch.config_name.removesuffix(".yaml")
        if name not in known and "<" not in name:
            close = nearest_word(name, known)
            report.failed(
                rule,
                script.at(launch.row),
                f"--config-name {launch.config_name}: this verl has no such config; it has "
                f"{', '.join(known)}",
                "leave --config-path and --config-name out and give model_engine=megatron"
                if "megatron" in name
                else f"--config-name {close or 'ppo_trainer'}",
            )
    report.settle(rule)


def _variables(report: Report, script: Script, launch: Launch, tree: VerlTree) -> None:
    rule = "recipe-script-variable"
    sources: str | None = None
    for name, value in launch.environment.items():
        row = launch.rows.get(name, launch.row)
        if name in _NO_VARIABLES:
            key = _NO_VARIABLES[name]
            report.failed(
                rule,
                script.at(row),
                f"verl does not read {name}: it changes nothing",
                f"the setting is {key}={script.shown(value)}",
            )
        elif name.startswith("VERL_"):
            sources = sources if sources is not None else _sources(tree)
            if name not in sources:
                report.warn(
                    rule, script.at(row), f"nothing in this verl reads {name}", "leave it out"
                )
    report.settle(rule)


@lru_cache(maxsize=2)
def _sources(tree: VerlTree) -> str:
    return "\n".join(
        path.read_text(encoding="utf-8", errors="replace") for path in tree.package.rglob("*.py")
    )


def _nodes(report: Report, script: Script, launch: Launch) -> None:
    """trainer.nnodes left at verl's default where the script itself speaks of several nodes."""
    rule, key = "recipe-script-nodes", "trainer.nnodes"
    names = {word.text.lstrip("+").partition("=")[0] for word in launch.words}
    # With options of others in between, or a config of its own, the number may be set there.
    fixed = key in names or launch.open_words or launch.config_name is not None
    if launch.entry.startswith("verl.trainer.main_ppo") and not fixed:
        why = _several_nodes(script, launch)
        if why:
            report.warn(
                rule,
                script.at(launch.row),
                f"{key} is left at verl's default 1, but {why}: only the GPUs of one node would be "
                "used",
                f"{key}=NUMBER_OF_NODES",
            )
    report.settle(rule)


def _several_nodes(script: Script, launch: Launch) -> str:
    """What in the script speaks of several nodes; '' where nothing does."""
    hostfile = re.compile(r"(^|[/_.-])host_?files?($|[/_.=-])", re.I)
    for run in script.reading.runs:
        for word in run.words:
            if run.words and hostfile.search(word.text.partition("=")[0]):
                return f"line {run.row} uses a hostfile ({script.shown(word.text)})"
    argv = launch.run.argv
    for index, text in enumerate(argv):
        match = re.fullmatch(r"(?:--nodes|-N)(?:=(\d+))?", text)
        count = match and (match.group(1) or argv[index + 1 : index + 2][0:1] or "")
        number = count if isinstance(count, str) else (count[0] if count else "")
        if number.isdecimal() and int(number) > 1:
            return f"srun starts it on {number} nodes"
    if "ray job submit" in launch.via:
        return "the job is submitted to a Ray cluster"
    return ""


def _files(report: Report, script: Script, tree: VerlTree) -> None:
    """Sources of verl that the script edits or copies, and that the locked verl does not have."""
    rule = "recipe-script-missing-source"
    seen = set()
    for run in script.reading.runs:
        for word in run.words:
            match = re.search(r"(?:^|.*/)verl/((?!verl/)(?:\w+/)+\w+\.py)$", word.text)
            if match is None or (tree.package / match.group(1)).is_file():
                continue
            if not (tree.package / match.group(1).partition("/")[0]).is_dir():
                continue  # a folder named verl with other things in it: a checkout, say
            if (word.row, match.group(1)) in seen:
                continue
            seen.add((word.row, match.group(1)))
            name = PurePosixPath(match.group(1)).name
            there = sorted(path.relative_to(tree.package) for path in tree.package.rglob(name))
            engine = "workers/engine/megatron" if "megatron" in name else "workers/engine"
            report.failed(
                rule,
                script.at(word.row),
                f"this verl has no verl/{match.group(1)}: an edit of it changes nothing",
                f"it is now verl/{there[0]}" if there else f"that code is in verl/{engine}/ now",
            )
    report.settle(rule)


def _assumptions(report: Report, script: Script) -> None:
    """What the reading takes for granted, and what it did not read."""
    for name, row in script.reading.not_read.items():
        report.note("recipe-script-other.hand-what-sets", script.at(row), name=name)
    if script.reading.too_much:
        report.unknown(
            "recipe-script-length.read-end", str(script.path), too_much=script.reading.too_much
        )
    if script.strict:
        report.note("recipe-script-arguments.without-arguments-script", str(script.path))


def _open(report: Report, script: Script, launch: Launch) -> None:
    """Words of the command that are not known, and whether it runs at all."""
    for word in launch.open_words:
        unknown = script.reading.unknowns.first(word.text)
        name = unknown.text() if unknown is not None else word.text
        report.note("recipe-script-unknown.options-set-checked", script.at(word.row), name=name)
    if launch.branch is not None:
        report.note(
            "recipe-script-branch.whether-launch-runs",
            script.at(launch.row),
            text=launch.branch.text(),
        )
