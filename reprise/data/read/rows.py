"""The rules of one five-field row: what verl's data set, template and scorer require."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reprise.core.findings import Severity
from reprise.core.rules import rule_id, text_of

__all__ = ["PARTS", "ROLES", "SEARCH_PREFIX", "Fault", "as_list", "prompt_faults", "row_faults"]

# The data sources of verl's search scorer (search_r1_like_qa_em.py at 220e903 and in 0.9.1), which
# reads ground_truth["target"]; no other scorer does.
SEARCH_PREFIX = "searchR1_"
# The roles that the chat templates of Hy3 and Qwen3 render.
ROLES = ("system", "user", "assistant", "tool")


# A content of parts: a fault only for a model without a processor of images.
PARTS = "data-media.parts"


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault; equal faults of many rows become one finding that lists the rows."""

    rule: str
    message: str
    fix: str
    severity: Severity = Severity.ERROR


@functools.cache
def _fault(name: str) -> Fault:
    return _fault_with(name)


def _fault_with(name: str, **values: object) -> Fault:
    """A fault with the text `name` of the registry, which also gives its severity."""
    text = text_of(name)
    message, fix = text.render(values)
    return Fault(rule_id(name), message, fix, Severity(text.severity))


def as_list(value: object) -> Sequence[Any] | None:
    """The value as a sequence when it is a list of any kind, else None.

    pandas gives list columns as numpy arrays of dicts; those are lists to verl as well.
    """
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return value.tolist()  # type: ignore[no-any-return]
    return None


def row_faults(
    row: Mapping[str, Any], prompt_key: str = "prompt", custom_reward: bool = False
) -> Iterator[Fault]:
    """All faults of one row (a dict of Python values).

    With a custom reward function ground_truth may have any type. The names in data_source are
    checked elsewhere, by value. Never raises, whatever the row contains.
    """
    for name in (prompt_key, "reward_model", "data_source"):
        if name not in row:
            yield _no_column(name)
    if prompt_key in row:
        yield from prompt_faults(row[prompt_key])
    if "reward_model" in row:
        source = row.get("data_source")
        search = isinstance(source, str) and source.startswith(SEARCH_PREFIX)
        yield from _reward_faults(row["reward_model"], custom_reward, search)
    if "data_source" in row:
        source = row["data_source"]
        if not isinstance(source, str):
            yield _fault("data-source.not-a-string")
        elif _broken(source):
            yield _fault("data-type.not-unicode")
    extra = row.get("extra_info")
    if extra is not None and not isinstance(extra, Mapping):
        yield _fault("data-extra-info.not-an-object")


def _no_column(name: str) -> Fault:
    wanted = "reward_model.ground_truth" if name == "reward_model" else name
    return _fault_with("data-columns.missing", column=wanted)


def prompt_faults(prompt: object) -> Iterator[Fault]:
    """Faults of the prompt of one row: type, emptiness, roles, contents."""
    if prompt is None:
        yield _fault("data-prompt.missing")
        return
    if isinstance(prompt, str):
        is_json = _is_json_messages(prompt)
        yield _fault("data-prompt.json-text") if is_json else _fault("data-prompt.plain-text")
        return
    if isinstance(prompt, Mapping):
        yield _fault("data-prompt.one-message")
        return
    messages = as_list(prompt)
    if messages is None:
        kind = type(prompt).__name__
        yield _fault_with("data-prompt.other-type", kind=kind)
        return
    if not messages:
        yield _fault("data-prompt.empty")
        return
    yield from _unique(fault for message in messages for fault in _message_faults(message))
    if all(_is_blank(message) for message in messages):
        yield _fault("data-prompt.blank")
    if _role_of(messages[-1]) == "assistant":
        yield _fault("data-prompt-role.assistant-last")


def _role_of(message: object) -> str | None:
    role = message.get("role") if isinstance(message, Mapping) else None
    return role if isinstance(role, str) else None


def _unique(faults: Iterator[Fault]) -> Iterator[Fault]:
    yield from dict.fromkeys(faults)


def _message_faults(message: object) -> Iterator[Fault]:
    if not isinstance(message, Mapping):
        yield _fault("data-prompt.message-type")
        return
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        yield _role_fault(role)
    content = message.get("content")
    if content is None:
        if not _has_calls(message):
            yield _fault("data-prompt.no-content")
    elif isinstance(content, str):
        if _broken(content):
            yield _fault("data-type.not-unicode")
    elif as_list(content) is None:
        yield _fault("data-prompt.content-type")
    else:
        yield _fault(PARTS)


def _role_fault(role: object) -> Fault:
    shown = _shorten(role)
    meant = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}
    near = meant.get(role) if isinstance(role, str) else None
    allowed = ", ".join(ROLES)
    if near:
        return _fault_with(
            "data-prompt-role.renamed", shown=shown, allowed=allowed, role=role, near=near
        )
    return _fault_with("data-prompt-role.unknown", shown=shown, allowed=allowed)


def _has_calls(message: Mapping[str, Any]) -> bool:
    """A message of the assistant may consist of tool calls only."""
    calls = as_list(message.get("tool_calls"))
    return calls is not None and len(calls) > 0


def _is_blank(message: object) -> bool:
    if not isinstance(message, Mapping) or _has_calls(message):
        return False
    content = message.get("content")
    return isinstance(content, str) and not content.strip()


def _reward_faults(reward: object, custom_reward: bool, search: bool) -> Iterator[Fault]:
    if not isinstance(reward, Mapping):
        yield _fault("data-ground-truth.not-an-object")
        return
    truth = reward.get("ground_truth")
    if truth is None:
        yield _fault("data-ground-truth.missing")
    elif search and not custom_reward:
        if not _is_search_target(truth):
            yield _fault("data-ground-truth.no-target")
    elif isinstance(truth, str):
        if _broken(truth):
            yield _fault("data-type.not-unicode")
        elif not truth.strip():
            yield _fault("data-ground-truth.blank")
        elif truth != truth.strip():
            yield _fault("data-ground-truth.spaces")
    elif not custom_reward:
        kind = "list" if as_list(truth) is not None else type(truth).__name__
        yield _fault_with("data-ground-truth.not-a-string", kind=kind)


def _is_search_target(truth: object) -> bool:
    """What the search scorer reads."""
    return isinstance(truth, Mapping) and truth.get("target") is not None


def _is_json_messages(text: str) -> bool:
    if not text.lstrip().startswith(("[", "{")):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    items = value if isinstance(value, list) else [value]
    return bool(items) and all(isinstance(item, dict) and "content" in item for item in items)


def _broken(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _shorten(value: object) -> str:
    shown = repr(value)
    return ascii(shown)[1:-1] if not shown.isprintable() else shown[:60]
