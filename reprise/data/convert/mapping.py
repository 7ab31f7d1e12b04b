"""The mapping of a user's columns to the five fields: the options of `reprise data convert`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from reprise.core.errors import OperatorError
from reprise.data.convert.answers import Extraction

__all__ = ["TEMPLATES", "ColumnMap", "read_mapping"]

# Named prompt templates; each asks for the answer where one of verl's scorers looks for it
# (verl/utils/reward_score at 220e903: math_dapo.py, gsm8k.py, math_reward.py).
TEMPLATES = {
    "plain": "{question}",
    "answer-line": (
        "{question}\n\nReason step by step. End with a line of the form `Answer: X`, where X is "
        "the final answer."
    ),
    "gsm8k": "{question}\n\nReason step by step. End with `#### X`, where X is the final number.",
    "boxed": "{question}\n\nReason step by step. Put the final answer within \\boxed{}.",
}


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """The roles of the columns. Without question and messages the input has the five fields.

    `template` holds `{question}`, and maybe other columns as `{name}`; `roles` renames roles (human
    -> user). `data_source` and `ability` are values for every row; None keeps the column of that
    name. `messages` is a column of chat messages, whose last assistant message is the answer unless
    `answer` names a column.
    `drop` names columns that are left out. `marked`: some row marks its final answer, so that one
    without a mark has none (found by the conversion, not an option).
    """

    question: str | None = None
    answer: str | None = None
    messages: str | None = None
    data_source: str | None = None
    ability: str | None = None
    style: str = "rule"
    split: str = "train"
    template: str = TEMPLATES["plain"]
    system: str | None = None
    extract: Extraction = "auto"
    roles: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    marked: bool = False

    @property
    def five_fields(self) -> bool:
        """Whether the input is taken to have the five fields."""
        return self.question is None and self.messages is None

    def used(self) -> set[str]:
        """The columns that do not reach the output: sources of the fields, and those to drop."""
        return {name for name in (self.question, self.answer, self.messages, *self.drop) if name}

    def but(self, **changes: object) -> ColumnMap:
        """This mapping with the options that were given (those that are None stay)."""
        given = {key: value for key, value in changes.items() if value is not None}
        if isinstance(given.get("template"), str):
            given["template"] = _template(str(given["template"]))
        return _sound(replace(self, **given))  # type: ignore[arg-type]


def _template(text: str) -> str:
    """A named template, `@FILE`, or the text itself; it must hold `{question}`."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8").rstrip("\n")
        except OSError as error:
            raise OperatorError(
                "data-mapping.template-file", "--template", file=text[1:], reason=error.strerror
            ) from None
    text = TEMPLATES.get(text, text)
    if "{question}" not in text:
        raise OperatorError(
            "data-mapping.template",
            "--template",
            text=text[:60],
            templates=", ".join(TEMPLATES),
        )
    return text


def _sound(mapping: ColumnMap) -> ColumnMap:
    if mapping.question and mapping.messages:
        raise OperatorError("data-mapping.two-inputs", "--question")
    if mapping.question and not mapping.answer:
        raise OperatorError("data-mapping.no-answer", "--answer")
    if not mapping.five_fields and not mapping.data_source:
        raise OperatorError("data-mapping.no-data-source", "--data-source")
    if mapping.extract not in ("auto", "gsm8k", "boxed", "raw"):
        raise OperatorError("data-mapping.extract", "--extract", value=mapping.extract)
    return mapping


def read_mapping(path: Path) -> ColumnMap:
    """A mapping from a small YAML file whose keys are the options' names.

    Raises OperatorError for any other file, with the wrong keys.
    """
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        shown = str(error).splitlines()[0]
        raise OperatorError("data-mapping.unreadable", str(path), reason=shown) from None
    if not isinstance(value, dict):
        raise OperatorError("data-mapping.not-a-mapping", str(path))
    known = {item.name: item for item in fields(ColumnMap) if item.name != "marked"}
    options: dict[str, Any] = {str(key).replace("-", "_"): item for key, item in value.items()}
    wrong = [key for key in options if key not in known or not _fits(key, options[key])]
    if wrong:
        raise OperatorError(
            "data-mapping.unknown-keys",
            str(path),
            wrong=", ".join(sorted(wrong)),
            known=", ".join(known),
        )
    return ColumnMap().but(**options)


def _fits(key: str, value: object) -> bool:
    if key == "drop":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if key == "roles":
        return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    return value is None or isinstance(value, str)
