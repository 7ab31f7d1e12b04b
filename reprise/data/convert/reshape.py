"""One row of a user's own data as the five fields: what is changed, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reprise.core.findings import Severity
from reprise.data.convert.answers import extract_answer, normalise_answer
from reprise.data.convert.mapping import ColumnMap
from reprise.data.read.rows import as_list, row_faults

__all__ = ["Refused", "Reshaped", "reshape"]


class Refused(Exception):
    """The row cannot be converted; the text says why, without the row's number."""


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


def _extra(row: Mapping[str, Any], mapping: ColumnMap, place: int) -> dict[str, Any]:
    """The columns that are not used otherwise, with split and index."""
    kept = {key: value for key, value in row.items() if key not in mapping.used()}
    return kept | {"split": mapping.split, "index": place}


def _from_fields(row: Mapping[str, Any], mapping: ColumnMap, changes: list[str]) -> dict[str, Any]:
    missing = [name for name in ("prompt", "reward_model") if name not in row]
    if "data_source" not in row and mapping.data_source is None:
        missing.append("data_source")
    if missing:
        raise Refused(f"no {', '.join(missing)} (map the columns: --question, --answer)")
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
        raise Refused(f"no column {', '.join(missing)} (found: {', '.join(map(str, row))[:200]})")
    text = row[question]
    if not isinstance(text, str) or not text.strip():
        raise Refused(f"{question} is blank or no text")
    content = mapping.template.replace("{question}", text)
    return _fields(mapping, [{"role": "user", "content": content}], row[answer], changes)


def _from_messages(
    row: Mapping[str, Any], mapping: ColumnMap, changes: list[str]
) -> dict[str, Any]:
    name = str(mapping.messages)
    if name not in row:
        raise Refused(f"no column {name} (found: {', '.join(map(str, row))[:200]})")
    messages = _messages(row[name], mapping, changes)
    if mapping.answer is not None:
        if mapping.answer not in row:
            raise Refused(f"no column {mapping.answer}")
        answer = row[mapping.answer]
    else:
        if not messages or messages[-1].get("role") != "assistant":
            raise Refused("the last message is not the assistant's, and no --answer is given")
        answer = messages.pop().get("content")
        changes.append("the last assistant message taken as the answer")
    return _fields(mapping, messages, answer, changes)


def _fields(
    mapping: ColumnMap, messages: list[dict[str, Any]], answer: object, changes: list[str]
) -> dict[str, Any]:
    if isinstance(answer, str):
        found = extract_answer(answer, mapping.extract)
        if found is None:
            raise Refused(f"no answer marked as {mapping.extract}")
        if found != answer.strip():
            changes.append("final answer taken out of the solution")
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
    text, told = normalise_answer(value)
    if text is None:
        raise Refused(told)
    if told:
        changes.append(told)
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
        raise Refused("the prompt is no list of messages")
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
    """One message with role and content; keys that are null are what a reader filled in."""
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
