"""The registry of rules: what each checks, and the texts of its findings with their fixes.

Each layer keeps its entries in a file `rules.toml` of its own folder:

    [gpu-count]
    about = "A host has as many GPUs as slots= in the hostfile."
    doc = "doctor.md"

    [gpu-count.too-few]
    severity = "error"
    message = "{have} of {slots} GPUs"
    fix = "run {tool} on the host, or correct slots= in the hostfile"
    sample = { have = 7, slots = 8, tool = "nvidia-smi" }

Code names a text as "gpu-count.too-few" and passes its values by name.
"""

from __future__ import annotations

import functools
import re
import shlex
import string
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

__all__ = ["Rule", "Text", "is_text_name", "known_rules", "render", "rule_id", "text_of"]

_FILE = "rules.toml"


class _Quoting(string.Formatter):
    """`str.format` with one more conversion: `{path!q}` is a word of a shell command."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion == "q":
            return shlex.quote(str(value))
        return super().convert_field(value, conversion)


@dataclass(frozen=True, slots=True)
class Text:
    """One text of a rule: templates in the form of `str.format`, and values to try them with.

    In a fix, `{path!q}` is quoted for a shell.
    `severity` is error, warning, note or unknown (the rule could not be evaluated).
    """

    severity: str
    message: str
    fix: str
    sample: Mapping[str, Any]

    def fields(self) -> set[str]:
        """The names of the values that the templates need."""
        parts = (*string.Formatter().parse(self.message), *string.Formatter().parse(self.fix))
        return {re.split(r"[.\[]", name)[0] for _, name, _, _ in parts if name}

    def render(self, values: Mapping[str, object]) -> tuple[str, str]:
        """Message and fix with `values` put in."""
        return self.message.format_map(values), _Quoting().vformat(self.fix, (), values)

    @property
    def shown_fix(self) -> str:
        """The template of the fix as people read it."""
        return self.fix.replace("!q}", "}")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: what it checks, the page that explains it, and its texts by name."""

    id: str
    layer: str
    about: str
    doc: str
    texts: Mapping[str, Text] = field(default_factory=dict)


def rule_id(name: str) -> str:
    """The rule that a text belongs to: `gpu-count` of `gpu-count.too-few`."""
    return name.partition(".")[0]


def is_text_name(text: str) -> bool:
    """Is `text` the name of a text (`gpu-count.too-few`), and not a sentence?"""
    return re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", text) is not None


@functools.cache
def text_of(name: str) -> Text:
    """The text `RULE.TEXT`; raises KeyError when no file of the package has it."""
    rule, _, text = name.partition(".")
    for layer, written in _written().items():
        # Only the files that have it are parsed: all of them take 0.1 s.
        if f"[{name}]" in written:
            return Text(**_parsed(layer)[rule][text])
    raise KeyError(name)


def render(name: str, values: Mapping[str, object]) -> tuple[str, str]:
    """Message and fix of the text `RULE.TEXT` with `values` put in."""
    return text_of(name).render(values)


@functools.cache
def known_rules() -> Mapping[str, Rule]:
    """All rules of the package by id, sorted.

    Layers may add texts to one rule (a hash that differs means the same for data and models);
    one of them then has its description. Raises ValueError where two define the same text.
    """
    found: dict[str, Rule] = {}
    for layer, entries in _files():
        for name, entry in entries.items():
            texts = {key: Text(**value) for key, value in entry.items() if isinstance(value, dict)}
            before = found.get(name)
            if before is None:
                found[name] = Rule(name, layer, entry.get("about", ""), entry.get("doc", ""), texts)
                continue
            if twice := before.texts.keys() & texts.keys():
                raise ValueError(f"{before.layer} and {layer} both define {name}: {sorted(twice)}")
            found[name] = Rule(
                name,
                before.layer if before.about else layer,
                before.about or entry.get("about", ""),
                before.doc or entry.get("doc", ""),
                {**before.texts, **texts},
            )
    return dict(sorted(found.items()))


def _files() -> Iterator[tuple[str, dict[str, Any]]]:
    """Layer and content of every rules file of the package."""
    for layer in _written():
        yield layer, _parsed(layer)


@functools.cache
def _written() -> Mapping[str, str]:
    """The text of every rules file by its layer."""
    root = resources.files("reprise")
    found = {}
    for folder in sorted(root.iterdir(), key=lambda item: item.name):
        file = folder / _FILE
        if folder.is_dir() and file.is_file():
            found[folder.name] = file.read_text(encoding="utf-8")
    return found


@functools.cache
def _parsed(layer: str) -> dict[str, Any]:
    """The content of a layer's rules file. Not to be changed by the caller."""
    return tomllib.loads(_written()[layer])
