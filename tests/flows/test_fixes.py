"""The commands that findings of lock, setup and bundle name as a fix: each works as typed."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from reprise.bundle.create import create
from reprise.cli import app
from reprise.core.findings import Report
from reprise.core.rules import known_rules
from reprise.flows.lock.reality import verify as verify_lock
from reprise.lock.model import MACHINES, Lock
from reprise.lock.read import read_lock, resolve_name
from reprise.lock.rows import ThisMachine
from reprise.trees.install import PLACED

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    *(
        path
        for layer in ("lock", "trees", "bundle", "images", "flows/lock")
        for path in (ROOT / "reprise" / layer).glob("*.py")
    ),
    *(ROOT / f"reprise/cli/commands/{name}.py" for name in ("lock", "setup", "bundle", "image")),
]
LAYERS = {"lock", "trees", "bundle", "images"}
COMMAND = re.compile(r"`(reprise [a-z][^`]*)`")


def accepts(command: str) -> None:
    """Let the command line's own parser take the words; nothing is run."""
    words = shlex.split(command.partition(">")[0])[1:]
    found: Any = typer.main.get_command(app)
    context = found.make_context("reprise", [*words], resilient_parsing=True)
    while hasattr(found, "commands"):
        name, found, words = found.resolve_command(context, words)
        assert found is not None, command
        if hasattr(found, "commands"):
            context = found.make_context(name, [*words], parent=context, resilient_parsing=True)
    found.make_context(name, [*words], parent=context)


def texts(path: Path) -> Iterator[str]:
    """Every string of a module but the docstrings; what is filled in reads NAME."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                part.value if isinstance(part, ast.Constant) else "NAME" for part in node.values
            )
        elif isinstance(node, ast.Constant) and id(node) not in prose:
            yield str(node.value).replace("{}", "NAME")


def registered() -> Iterator[str]:
    """The fixes of these layers' rules, their values replaced by NAME."""
    for rule in known_rules().values():
        if rule.layer in LAYERS:
            for text in rule.texts.values():
                yield re.sub(r"\{[^}]*\}", "NAME", text.fix)


WRITTEN = sorted(
    {
        command
        for found in (*map(texts, SOURCES), registered())
        for text in found
        for command in COMMAND.findall(text)
        if len(command.split()) > 2 or "NAME" in command
    }
)


def test_many_fixes_are_collected() -> None:
    assert len(WRITTEN) > 12
    assert "reprise setup tree.NAME" in WRITTEN


@pytest.mark.parametrize("command", WRITTEN)
def test_a_written_fix_is_a_command(command: str) -> None:
    accepts(command)


# Commands in the fixes of the registry, with and without quotes; prose begins otherwise.
LOOSE = re.compile(
    r"(?:`|^|(?<=[;:,] )|(?<= or )|(?<=then )|(?<=\())"
    r"((?:reprise|make|git|sh|scripts/[\w/]+\.(?:sh|py)) (?!the |it |this )[^`;(),]+)"
    r"(?:`|$|(?= \()|(?=[;,)]))"
)
TARGETS = set(
    re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)


def loose() -> list[tuple[str, str]]:
    """Every command in a fix of lock, setup, bundle, images and models, with its text's name."""
    found = set()
    for rule in known_rules().values():
        for name, text in rule.texts.items() if rule.layer in LAYERS | {"models"} else ():
            filled, _ = re.subn(r"\{[^}]*\}", "NAME", text.fix.replace("{{", "").replace("}}", ""))
            found |= {(f"{rule.id}.{name}", item.strip()) for item in LOOSE.findall(filled)}
    return sorted(found)


@pytest.mark.parametrize(("name", "command"), loose())
def test_every_command_of_a_fix_can_be_typed(name: str, command: str) -> None:
    words = shlex.split(command)
    match words[0]:
        case "reprise":
            accepts(command)
        case "make":
            assert words[1] in TARGETS, command
        case "git":
            known = subprocess.run(
                ["git", "help", "-a"], capture_output=True, text=True, check=True
            ).stdout
            verb = next(word for word in words[1:] if word not in ("-C", "NAME", "config"))
            assert re.search(rf"^\s+{re.escape(verb)}\s", known, re.MULTILINE) or "config" in words
        case script:
            file = words[1] if script == "sh" else script
            assert (ROOT / file).is_file(), command


def test_a_command_that_is_none_is_refused() -> None:
    with pytest.raises(BaseException, match=r"(?i)no such option"):
        accepts("reprise setup --nope")
    with pytest.raises(BaseException, match=r"(?i)missing"):
        accepts("reprise model fetch hy3")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's lock and requirements, with nothing of what they name."""
    root = tmp_path_factory.mktemp("bare")
    shutil.copy(ROOT / "versions.lock", root)
    shutil.copytree(ROOT / "requirements", root / "requirements")
    return root


def named(command: str, lock: Lock) -> None:
    """The entry that a command of a fix names is one entry, of the kind that it is for."""
    words = [word for word in shlex.split(command)[1:] if not word.startswith("-")]
    kinds: Sequence[str] = ()
    match words:
        case ["setup", name, *_]:
            kinds = PLACED
        case ["data", "fetch", name, *_]:
            kinds = ("data",)
        case ["lock", "update" | "image", name, *_]:
            pass
        case _:
            return
    kind = resolve_name(lock, name, kinds).partition(".")[0]
    assert not kinds or kind in kinds, command


LOCKED = read_lock(ROOT / "versions.lock")


@pytest.mark.parametrize("machine", [name for name in MACHINES if any(LOCKED.entries(name))])
def test_a_printed_fix_works_as_typed(bare: Path, tmp_path: Path, machine: Any) -> None:
    path = bare / "versions.lock"
    lock = read_lock(path)
    reports: list[Report] = [verify_lock(path, [], machine, ThisMachine(bare), False, None)]
    if machine != "operator":
        reports.append(create(path, tmp_path / "b", [], machine))
        assert reports[-1].exit_code != 0
        assert list(tmp_path.iterdir()) == []
    fixes = [finding.fix for report in reports for finding in report.findings]
    commands = {command for fix in fixes for command in COMMAND.findall(fix)}
    assert commands or not any(name.startswith("tree.") for name, _ in lock.entries(machine))
    for command in commands:
        accepts(command)
        named(command, lock)


def test_setup_takes_the_short_name_of_a_tree() -> None:
    lock = read_lock(ROOT / "versions.lock")
    assert resolve_name(lock, "transferqueue", PLACED) == "tree.transferqueue"
    with pytest.raises(Exception, match="2 entries have this name"):
        resolve_name(lock, "transferqueue")
