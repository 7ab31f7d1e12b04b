"""Convert one row of a user's own data to the five fields: changes, and reasons to refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reprise.core.findings import Severity
from reprise.data.convert.answers import NoAnswer, extract_answer, normalise_answer
from reprise.data.convert.mapping import ColumnMap
from reprise.data.read.rows import as_list, row_faults

__all__ = ["Refused", "Reshaped", "answer_text", "reshape"]


# The second part of Alpaca's instruction, empty in most rows.
ALPACA_INPUT = "input"
# `{name}` in a template; after a letter it is LaTeX, as in \\boxed{x}.
_PLACEHOLDER = re.compile(r"(?<![\\A-Za-z}])\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Refused(Exception):
    """The row cannot be converted; the text gives the reason, without the row number."""


@dataclass(slots=True)
class Reshaped:
    """The computed fields of a row, and the kinds of change that were made to it."""

    fields: dict[str, Any]
    changes: list[str] = field(default_factory=list)


def reshape(row: Mapping[str, Any], mapping: ColumnMap, place: int) -> Reshaped:
    """Compute data_source, prompt, ability and reward_model (and extra_info where it is new).

    `place` is the row's 0-based place, which becomes extra_info.index of a new extra_info.
    Raises Refused.
    """
    changes: list[str] = []
    if mapping.five_fields:
        fields = _from_fields(row, mapping, changes)
    elif mapping.question is not None:
        fields = _from_question(row, mapping, changes)
    else:
        fields = _from_messages(row, mapping, changes)
    if "extra_info" not in fields and not mapping.five_fields:
        fields["extra_info"] = _extra(row, mapping, place)
    for fault in row_faults(fields):
        if fault.severity is Severity.ERROR:
            raise Refused(fault.message)
    return Reshaped(fields, changes)


def answer_text(row: Mapping[str, Any], mapping: ColumnMap) -> str | None:
    """The text in which the final answer is looked for; None where there is none."""
    if mapping.answer is not None:
        value = row.get(mapping.answer)
    else:
        messages = as_list(row.get(str(mapping.messages))) or ()
        last = messages[-1] if messages else None
        value = (last.get("content") or last.get("value")) if isinstance(last, Mapping) else None
    return value if isinstance(value, str) else None


def _extra(row: Mapping[str, Any], mapping: ColumnMap, place: int) -> dict[str, Any]:
    """The columns without another use, with split and index."""
    kept = {key: value for key, value in row.items() if key not in mapping.used()}
    return kept | {"split": mapping.split, "index": place}


def _from_fields(row: Mapping[str, Any], mapping: ColumnMap, changes: list[str]) -> dict[str, Any]:
    missing = [name for name in ("prompt", "reward_model") if name not in row]
    if "data_source" not in row and mapping.data_source is None:
        missing.append("data_source")
    if missing:
        raise Refused(
            f"missing {', '.join(missing)} (map the columns with --question and --answer)"
        )
    reward = row["reward_model"]
    if not isinstance(reward, Mapping):
        raise Refused("reward_model is not an object")
    if "style" not in reward:
        changes.append("reward_model.style added")
    return {
        "data_source": mapping.data_source or row["data_source"],
        "prompt": _messages(row["prompt"], mapping, changes),
        "ability": mapping.ability or row.get("ability") or "unknown",
        "reward_model": {"style": mapping.style}
        | dict(reward)
        | {"ground_truth": _truth(reward.get("ground_truth"), changes)},
    }


def _from_question(
    row: Mapping[str, Any], mapping: ColumnMap, changes: list[str]
) -> dict[str, Any]:
    question, answer = str(mapping.question), str(mapping.answer)
    missing = [name for name in (question, answer) if name not in row]
    if missing:
        raise Refused(
            f"missing column {', '.join(missing)} (found: {', '.join(map(str, row))[:200]})"
        )
    text = row[question]
    if not isinstance(text, str) or not text.strip():
        raise Refused(f"{question} is blank or not text")
    content = _PLACEHOLDER.sub(lambda found: _filled(found[1], row, mapping), mapping.template)
    more = row.get(ALPACA_INPUT)
    if question == "instruction" and ALPACA_INPUT not in _PLACEHOLDER.findall(mapping.template):
        if isinstance(more, str) and more.strip():
            content = f"{content}\n\n{more}"
            changes.append("column input appended to the instruction")
        elif more is not None and not isinstance(more, str):
            raise Refused(f"{ALPACA_INPUT} is not text")
    return _fields(mapping, [{"role": "user", "content": content}], row[answer], changes)


def _filled(name: str, row: Mapping[str, Any], mapping: ColumnMap) -> str:
    """The text for `{name}` of a template: the question, or another column of text."""
    column = str(mapping.question) if name == "question" else name
    if column == mapping.answer:
        raise Refused(f"the template shows the answer: {{{name}}}")
    if column not in row:
        raise Refused(f"the template has {{{name}}}, and the row no such column")
    value = row[column]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refused(f"{column} is not text, and the template needs it")
    return value


def _from_messages(
    row: Mapping[str, Any], mapping: ColumnMap, changes: list[str]
) -> dict[str, Any]:
    name = str(mapping.messages)
    if name not in row:
        raise Refused(f"missing column {name} (found: {', '.join(map(str, row))[:200]})")
    messages = _messages(row[name], mapping, changes)
    if mapping.answer is not None:
        if mapping.answer not in row:
            raise Refused(f"missing column {mapping.answer}")
        answer = row[mapping.answer]
    else:
        if not messages or messages[-1].get("role") != "assistant":
            raise Refused("the last message is not the assistant's, and --answer is not given")
        answer = messages.pop().get("content")
        changes.append("the last assistant message taken as the answer")
    return _fields(mapping, messages, answer, changes)


def _fields(
    mapping: ColumnMap, messages: list[dict[str, Any]], answer: object, changes: list[str]
) -> dict[str, Any]:
    if isinstance(answer, str):
        try:
            found = extract_answer(answer, mapping.extract, mapping.marked)
        except NoAnswer as reason:
            raise Refused(str(reason)) from None
        if found != answer.strip():
            changes.append("final answer extracted from the solution")
        answer = found
    if mapping.system:
        messages = [{"role": "system", "content": mapping.system}, *messages]
    return {
        "data_source": mapping.data_source,
        "prompt": messages,
        "ability": mapping.ability or "unknown",
        "reward_model": {"style": mapping.style, "ground_truth": _truth(answer, changes)},
    }


def _truth(value: object, changes: list[str]) -> str:
    text, change = normalise_answer(value)
    if text is None:
        raise Refused(change)
    if change:
        changes.append(change)
    return text


def _messages(value: object, mapping: ColumnMap, changes: list[str]) -> list[dict[str, Any]]:
    """A list of messages out of a text, a JSON text, one message, or a list of messages."""
    if isinstance(value, str):
        decoded = _decode(value)
        if decoded is None:
            changes.append("plain text wrapped as a user message")
            return [{"role": "user", "content": value}]
        changes.append("JSON text of messages decoded")
        value = decoded
    if isinstance(value, Mapping):
        changes.append("one message wrapped in a list")
        value = [value]
    messages = as_list(value)
    if messages is None:
        raise Refused("the prompt is not a list of messages")
    return [_message(item, mapping, changes) for item in messages]


def _decode(text: str) -> object | None:
    if not text.lstrip().startswith(("[", "{")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    items = value if isinstance(value, list) else [value]
    looks_right = bool(items) and all(isinstance(i, dict) and "role" in i for i in items)
    return value if looks_right else None


def _message(value: object, mapping: ColumnMap, changes: list[str]) -> dict[str, Any]:
    """One message with role and content; null keys, which readers fill in, are removed."""
    if not isinstance(value, Mapping):
        raise Refused("a message is not an object")
    message = {key: item for key, item in value.items() if item is not None}
    if {"from", "value"} <= set(message) and "role" not in message:
        message["role"], message["content"] = message.pop("from"), message.pop("value")
        changes.append("from/value messages renamed to role/content")
    role = message.get("role")
    if isinstance(role, str) and role in mapping.roles:
        message["role"] = mapping.roles[role]
        changes.append(f"role {role} renamed to {mapping.roles[role]}")
    # Role and content first: the order of keys is part of the file's schema.
    first = {key: message.pop(key) for key in ("role", "content") if key in message}
    return first | message
