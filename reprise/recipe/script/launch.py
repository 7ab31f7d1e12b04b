"""The commands of a script that start a trainer, and what each hands to Hydra."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from reprise.recipe.bash.run import Run
from reprise.recipe.bash.state import Field
from reprise.recipe.bash.unknown import Unknown, has_unknown
from reprise.recipe.script.inner import wrappers
from reprise.recipe.script.reading import Reading

__all__ = ["DASHES", "Launch", "launches_of", "stranded"]

DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
"""Characters that look like a hyphen and are none."""

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_ENTRY = re.compile(r"(^|[._/])(main|trainer)([._]|$)|main_\w+|\w+_(main|trainer)(_\w+)?(\.py)?$")
_PYTHON = re.compile(
    r"(python[\d.]*|torchrun|torch\.distributed\.(run|launch)|accelerate|deepspeed)$"
)
_OVERRIDE = re.compile(r"^(\+\+|[+~])?[A-Za-z_][\w@/]*(\.[\w@]+)*=")
_DOTTED = re.compile(r"^(\+\+|[+~])?[A-Za-z_]\w*(\.\w+)+=")
_HYDRA = {"--config-path": "path", "-cp": "path", "--config-name": "name", "-cn": "name",
          "--config-dir": "dir", "-cd": "dir"}  # fmt: skip
_WITH_VALUE = ("--package", "-p", "--cfg", "-c", "--info", "-i")
_SFT = re.compile(r"sft|eval|merger|preprocess|data_process", re.I)


@dataclass(slots=True)
class Launch:
    """One command that starts a trainer.

    `entry` is the module (`verl.trainer.main_ppo`) or the file that Python runs; `words` what
    follows it; `branch` what leaves open whether it is started; `via` the programs in between.
    `runtime_env` is the file of a Ray job, `packaged` says that Ray ships the working folder.
    """

    entry: str
    run: Run
    words: list[Field]
    overrides: list[Field] = field(default_factory=list)
    open_words: list[Field] = field(default_factory=list)
    config_name: str | None = None
    config_path: str | None = None
    config_dir: str | None = None
    runtime_env: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    dashes: list[Field] = field(default_factory=list)
    via: tuple[str, ...] = ()
    packaged: bool = False

    @property
    def row(self) -> int:
        """The line of the command."""
        return self.run.row

    @property
    def branch(self) -> Unknown | None:
        """What leaves open whether the command runs."""
        return self.run.branch

    @property
    def trains(self) -> bool:
        """Whether the entry point is a trainer of reinforcement learning by its name."""
        return _SFT.search(self.entry) is None


def launches_of(reading: Reading) -> list[Launch]:
    """Every launch, in order; commands that differ in nothing are given once."""
    found: list[Launch] = []
    seen = set()
    for run in reading.runs:
        launch = _launch(run, reading)
        if launch is None:
            continue
        key = (launch.entry, tuple(word.text for word in launch.words))
        if key not in seen:
            seen.add(key)
            found.append(launch)
    return found


def _launch(run: Run, reading: Reading) -> Launch | None:
    at = _entry_at(run.words)
    if at is None:
        return None
    words = list(run.words[at + 1 :])
    launch = Launch(run.words[at].text, run, words)
    argv = run.argv[:at]
    launch.via = (*run.via, *wrappers(argv))
    launch.environment = dict(run.environment)
    launch.rows = dict(run.rows)
    launch.environment |= _assigned(run.words[:at])
    launch.dashes = [word for word in run.words if word.text[:1] in DASHES]
    _job(launch, argv)
    _arguments(launch, reading)
    return launch


def _entry_at(words: Sequence[Field]) -> int | None:
    """The position of the module or file that Python runs, where that is a trainer."""
    for at in range(1, len(words)):
        text, before = words[at].text, words[at - 1].text
        module = before == "-m" or (before[:1] in DASHES and before[1:] == "m")
        if module and _MODULE.fullmatch(text) and not _PYTHON.search(text):
            return at if _is_entry(text, words[at + 1 :]) else None
        if text.endswith(".py") and _runs_python(words[:at]):
            return at if _is_entry(text, words[at + 1 :]) else None
    return None


def _runs_python(words: Sequence[Field]) -> bool:
    return any(_PYTHON.search(posixpath.basename(word.text)) for word in words)


def _is_entry(text: str, rest: Sequence[Field]) -> bool:
    """A trainer by its name, or anything that gets overrides with dots."""
    name = text.rpartition("/")[2] if text.endswith(".py") else text.rpartition(".")[2]
    if re.search(r"main_(ppo|dapo|\w+)|(^|_)main(\.py)?$", name) and not _SFT.search(name):
        return True
    return any(_DOTTED.match(word.text) for word in rest)


def _assigned(words: Sequence[Field]) -> dict[str, str]:
    """NAME=value before the program (env, and docker's -e)."""
    found = {}
    for word in words:
        match = re.fullmatch(r"([A-Z][A-Z0-9_]*)=(.*)", word.text, re.S)
        if match:
            found[match.group(1)] = match.group(2)
    return found


def _job(launch: Launch, argv: Sequence[str]) -> None:
    """What `ray job submit` says of the job."""
    if "ray job submit" not in launch.via:
        return
    at = 0
    while at < len(argv):
        name, equals, value = argv[at].partition("=")
        if not equals and at + 1 < len(argv):
            value = argv[at + 1]
        if name == "--working-dir":
            launch.packaged = True
        elif name == "--runtime-env":
            launch.runtime_env = value
            launch.packaged = True
        elif name == "--runtime-env-json":
            _runtime_json(launch, value)
        at += 1


def _runtime_json(launch: Launch, text: str) -> None:
    try:
        found = json.loads(text)
    except ValueError:
        try:
            found = yaml.safe_load(text)
        except yaml.YAMLError:
            return
    if not isinstance(found, Mapping):
        return
    launch.packaged = launch.packaged or "working_dir" in found
    env = found.get("env_vars")
    if isinstance(env, Mapping):
        launch.environment |= {str(name): str(value) for name, value in env.items()}


def _arguments(launch: Launch, reading: Reading) -> None:
    """Hydra's own options, and the overrides."""
    words, at = launch.words, 0
    while at < len(words):
        word = words[at]
        text = word.text
        if text[:1] in DASHES:
            text = "--" + text.lstrip(DASHES + "-")
        name, equals, value = text.partition("=")
        at += 1
        if name in _HYDRA or name in _WITH_VALUE:
            if not equals and at < len(words):
                value = words[at].text
                at += 1
            _set_option(launch, _HYDRA.get(name, ""), reading.shown(value))
        elif text in (";", "&", "|", ">"):
            return
        elif word.loose == "words" or (has_unknown(text) and "=" not in text):
            launch.open_words.append(word)
        elif not text.startswith("-") and text:
            launch.overrides.append(word)


def _set_option(launch: Launch, kind: str, value: str) -> None:
    if kind == "path":
        launch.config_path = value
    elif kind == "name":
        launch.config_name = value
    elif kind == "dir":
        launch.config_dir = value


def stranded(reading: Reading, launch: Launch) -> list[Field]:
    """Words after the launch that are commands of their own and look like overrides."""
    found: list[Field] = []
    after = False
    for run in reading.runs:
        if run is launch.run:
            after = True
            continue
        if after and run.words and _DOTTED.match(run.words[0].text):
            found += [word for word in run.words if _OVERRIDE.match(word.text)]
    return found
