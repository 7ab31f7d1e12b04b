"""Check everything that a launch script starts: one composition and one set of rules a launch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.core.findings import Check, Finding, Report, State
from reprise.core.project import Project
from reprise.flows.recipe import check_recipe
from reprise.recipe.card import Card, card_of
from reprise.recipe.config.overrides import Line
from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.load import Inputs, load, verl_tree
from reprise.recipe.script import Launch, Script
from reprise.recipe.script.entry import Entry, entry_of
from reprise.recipe.script.judge import judge_config_name, judge_launch, judge_script
from reprise.recipe.unknowns import NotKnown, revealed

__all__ = ["ScriptInputs", "check_script", "split_set"]

_MOST_LAUNCHES = 20
_SYNCHRONOUS = re.compile(r"(verl\.trainer\.|.*verl/trainer/|.*/|)main_ppo(\.py)?$")
_WORSE = (State.PASSED, State.UNKNOWN, State.FAILED)


@dataclass(frozen=True, slots=True)
class ScriptInputs:
    """What a script is checked with: the recipe whose model it trains, a tree of verl, a model's
    config.json, a runtime environment, shared folders, further overrides, and values of `--set`
    for keys of the config.
    """

    model: str = ""
    verl: Path | None = None
    model_config: Path | None = None
    runtime_env: Path | None = None
    shared: tuple[str, ...] | None = None
    lines: tuple[Line, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)


def split_set(given: Sequence[str], text: str) -> tuple[dict[str, str], dict[str, str]]:
    """`--set KEY=VALUE` as variables of the script and as keys of the config.

    A name without a dot that the script's text uses is a variable. Raises OperatorError for an
    argument that is not KEY=VALUE.
    """
    variables: dict[str, str] = {}
    keys: dict[str, str] = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key:
            raise OperatorError("recipe-set.expected-key-value", f"--set {one}", one=one)
        name = re.fullmatch(r"[A-Za-z_]\w*", key) is not None
        if name and re.search(rf"(?<![\w.]){key}(?![\w.])", text):
            variables[key] = value
        else:
            keys[key.lstrip("+~")] = value
    return variables, keys


def check_script(
    project: Project,
    script: Script,
    inputs: ScriptInputs,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Every launch of the script, each with the config that its entry point uses.

    `data["launches"]` gives for each its place, entry point, config, overrides and verdict.
    Raises OperatorError where nothing can be composed at all.
    """
    card = card_of(project.recipes, inputs.model) if inputs.model else Card(
        title="script", status="not run"
    )  # fmt: skip
    tree = verl_tree(project.root, card, inputs.verl, say)
    report = Report("recipe check")
    report.data = {"verl": _verl(tree), "label": tree.label(), "launches": [], "rules": []}
    judge_script(report, script, tree)
    for launch in script.launches[:_MOST_LAUNCHES]:
        _add(report, _launch(project, script, launch, inputs, tree, say), script, launch)
    rest = script.launches[_MOST_LAUNCHES:]
    if rest:
        report.unknown(
            "recipe-script-launches.launches-first-checked",
            script.at(rest[0].row),
            launches_count=len(script.launches),
            most_launches=_MOST_LAUNCHES,
        )
    if len(script.launches) > 1:
        rows = ", ".join(str(launch.row) for launch in script.launches[:_MOST_LAUNCHES])
        report.note(
            "recipe-script-launches.launches-lines-each",
            str(script.path),
            launches_count=len(script.launches),
            rows=rows,
        )
    return report


def _verl(tree: VerlTree) -> dict[str, str | None]:
    return {"version": tree.version, "commit": tree.commit, "origin": tree.origin}


def _launch(
    project: Project,
    script: Script,
    launch: Launch,
    inputs: ScriptInputs,
    tree: VerlTree,
    say: Callable[[str], None],
) -> Report:
    """The report of one launch."""
    lines, table = _lines(script, launch, inputs)
    config, folder, search, module = "ppo_trainer", None, tuple[Path, ...](), launch.entry
    names = sorted(path.stem for path in tree.config.glob("*.yaml") if path.stem[0] != "_")
    found = entry_of(
        launch.entry, tree, script.path, launch.config_path, launch.config_name, launch.config_dir
    )
    report = Report("recipe check")
    report.data = {"entry": launch.entry, "config": "", "overrides": [], "rules": []}
    if isinstance(found, Entry):
        module = found.module
        if found.own:
            config, folder, search = found.name, found.folder, found.search
    elif _SYNCHRONOUS.fullmatch(launch.entry) and not _of_another_tree(launch, script):
        judge_config_name(report, script, launch, names)
    else:
        report.unknown(
            "recipe-script-config.options-checked",
            script.at(launch.row),
            entry=launch.entry,
            reason=found.reason,
        )
        judge_launch(report, script, launch, tree)
        return report
    loaded = load(project.root, inputs.model, lines, Inputs(
        inputs.verl,
        inputs.model_config,
        inputs.runtime_env or _beside(script, launch),
        config,
        _environment(script, launch),
        inputs.shared,
        folder,
        search,
        module,
        launch.packaged,
    ), say)  # fmt: skip
    checked = check_recipe(project, loaded)
    checked.absorb(report)
    checked.data |= {"entry": module, "config": loaded.composition.name}
    judge_launch(checked, script, launch, tree)
    checked.data["overrides"] = [line.shown for line in loaded.composition.lines]
    checked.findings = [_revealed(finding, table) for finding in checked.findings]
    return checked


def _of_another_tree(launch: Launch, script: Script) -> bool:
    """Whether a main_ppo is not verl's own: another package, or a file that is not verl's."""
    return not launch.entry.startswith("verl.") and "verl/trainer/" not in launch.entry


def _lines(
    script: Script, launch: Launch, inputs: ScriptInputs
) -> tuple[list[Line], dict[str, NotKnown]]:
    """All overrides of a launch with the values of --set put in, and what is unknown of them."""
    own = [*script.lines(launch), *script.dropped(launch)]
    open_lines = script.open_lines(launch)
    values = dict(inputs.values)
    lines: list[Line] = []
    for line in [*own, *open_lines]:
        prefix, key = _key(line.text)
        if key in inputs.values:
            if key in values:
                lines.append(Line(f"{prefix}{key}={values.pop(key)}", "--set"))
            continue
        lines.append(line)
    lines += [Line(f"{key}={value}", "--set") for key, value in values.items()]
    engine = any(_key(line.text)[1] == "model_engine" for line in lines)
    if not engine and "megatron" in (launch.config_name or "") and _SYNCHRONOUS.fullmatch(
        launch.entry
    ):  # fmt: skip
        lines.insert(0, Line("model_engine=megatron", script.at(launch.row)))
    lines += inputs.lines
    return lines, {mark: known for line in lines for mark, known in line.unknowns}


def _key(text: str) -> tuple[str, str]:
    """The prefix (+, ++, ~) and the key of an override."""
    match = re.match(r"([+~]*)([^=]*)", text)
    assert match is not None
    return match.group(1), match.group(2)


def _environment(script: Script, launch: Launch) -> dict[str, str]:
    return {name: script.shown(value) for name, value in launch.environment.items()}


def _beside(script: Script, launch: Launch) -> Path | None:
    """The runtime environment that the launch names, if it is there."""
    if not launch.runtime_env:
        return None
    path = Path(script.shown(launch.runtime_env))
    path = path if path.is_absolute() else script.path.parent / path
    return path if path.is_file() else None


def _revealed(finding: Finding, table: Mapping[str, NotKnown]) -> Finding:
    if not table:
        return finding
    return replace(
        finding,
        where=revealed(finding.where, table),
        message=revealed(finding.message, table),
        fix=revealed(finding.fix, table),
    )


def _add(report: Report, other: Report, script: Script, launch: Launch) -> None:
    """Take a launch's report over: each rule with its worst state, each finding once."""
    states = {check.rule: check.state for check in report.checks}
    for check in other.checks:
        before = states.get(check.rule, State.PASSED)
        states[check.rule] = max(before, check.state, key=_WORSE.index)
    report.checks = [Check(rule, state) for rule, state in states.items()]
    known = set(report.findings)
    for finding in other.findings:
        if finding not in known:
            report.findings.append(finding)
            known.add(finding)
    report.data["rules"] += other.data.get("rules", [])
    report.data.setdefault("facts", other.data.get("facts", {}))
    report.data["launches"].append(
        {
            "where": script.at(launch.row),
            "entry": other.data["entry"],
            "config": other.data["config"],
            "via": list(launch.via),
            "overrides": other.data["overrides"],
            "verdict": other.verdict.value,
        }
    )
    report.data.setdefault("overrides", other.data["overrides"])
