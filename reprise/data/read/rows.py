"""The rules of one five-field row: what verl's data set, template and scorer need of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reprise.core.findings import Severity

__all__ = ["ROLES", "Fault", "as_list", "prompt_faults", "row_faults"]

# The roles that the chat templates of Hy3 and Qwen3 render.
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault; equal faults of many rows become one finding that lists the rows."""

    rule: str
    message: str
    fix: str
    severity: Severity = Severity.ERROR


_CONVERT = "reprise data convert IN OUT"
_NO_PROMPT = Fault("data-prompt", "the prompt is missing (null)", "remove or complete these rows")
_EMPTY = Fault("data-prompt", "the prompt has no message", "remove or complete these rows")
_TEXT = Fault(
    "data-prompt",
    "the prompt is a plain string, not a list of messages: the chat template fails on it, and "
    "verl's length filter then drops the row as over-long",
    f"{_CONVERT} wraps it as [{{'role': 'user', 'content': ...}}]",
)
_JSON_TEXT = Fault(
    "data-prompt",
    "the prompt is a JSON string of messages, not a list: the template would see one long text",
    f"{_CONVERT} decodes it",
)
_ONE_MESSAGE = Fault(
    "data-prompt",
    "the prompt is one message, not a list of messages",
    f"{_CONVERT} wraps it in a list",
)
_MESSAGE_TYPE = Fault(
    "data-prompt",
    "a message is not an object with role and content",
    "write each message as {'role': ..., 'content': ...}",
)
_NO_CONTENT = Fault(
    "data-prompt", "a message has no content (missing or null)", "remove or complete these rows"
)
_BLANK = Fault("data-prompt", "every message is blank", "remove or complete these rows")
_CONTENT_TYPE = Fault(
    "data-prompt",
    "a message's content is neither a string nor a list of parts",
    "write the content as a string",
)
_LAST = Fault(
    "data-prompt-role",
    "the last message is the assistant's: the policy is asked to answer its own answer",
    "end the prompt with a user or tool message",
    Severity.WARNING,
)
_UNICODE = Fault(
    "data-type", "a text is not valid Unicode (a lone surrogate)", "repair the source's encoding"
)
_REWARD_TYPE = Fault(
    "data-ground-truth",
    "reward_model is not an object: scoring ends with KeyError or TypeError",
    "write {'style': 'rule', 'ground_truth': '...'}",
)
_NO_TRUTH = Fault(
    "data-ground-truth", "ground_truth is missing (null)", "remove or complete these rows"
)
_BLANK_TRUTH = Fault("data-ground-truth", "ground_truth is blank", "remove or complete these rows")
_SPACED_TRUTH = Fault(
    "data-ground-truth",
    "ground_truth has blanks around it: a scorer that compares texts calls a right answer wrong",
    f"{_CONVERT} trims it",
    Severity.WARNING,
)
_SOURCE_TYPE = Fault(
    "data-source", "data_source is not a string", "write the name that verl's scorer routes by"
)
_EXTRA_TYPE = Fault(
    "data-extra-info",
    "extra_info is not an object: verl's data set calls .get() on it",
    "write an object such as {'index': 0}, or leave the column out",
)


def as_list(value: object) -> Sequence[Any] | None:
    """The value as a sequence when it is a list in any of its guises, else None.

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
    """Everything that is wrong with one row (a dict of Python values).

    With a custom reward function the type of ground_truth is its own business. Whether the name
    in data_source is known is judged elsewhere, by value. Never raises, whatever the row holds.
    """
    for name in (prompt_key, "reward_model", "data_source"):
        if name not in row:
            yield _no_column(name)
    if prompt_key in row:
        yield from prompt_faults(row[prompt_key])
    if "reward_model" in row:
        yield from _reward_faults(row["reward_model"], custom_reward)
    if "data_source" in row:
        source = row["data_source"]
        if not isinstance(source, str):
            yield _SOURCE_TYPE
        elif _broken(source):
            yield _UNICODE
    extra = row.get("extra_info")
    if extra is not None and not isinstance(extra, Mapping):
        yield _EXTRA_TYPE


def _no_column(name: str) -> Fault:
    wanted = "reward_model.ground_truth" if name == "reward_model" else name
    return Fault("data-columns", f"no {wanted}", f"{_CONVERT}")


def prompt_faults(prompt: object) -> Iterator[Fault]:
    """What is wrong with the prompt of one row: type, emptiness, roles, contents."""
    if prompt is None:
        yield _NO_PROMPT
        return
    if isinstance(prompt, str):
        yield _JSON_TEXT if _is_json_messages(prompt) else _TEXT
        return
    if isinstance(prompt, Mapping):
        yield _ONE_MESSAGE
        return
    messages = as_list(prompt)
    if messages is None:
        kind = type(prompt).__name__
        yield Fault("data-prompt", f"the prompt is a {kind}, not a list of messages", _CONVERT)
        return
    if not messages:
        yield _EMPTY
        return
    yield from _unique(fault for message in messages for fault in _message_faults(message))
    if all(_is_blank(message) for message in messages):
        yield _BLANK
    if _role_of(messages[-1]) == "assistant":
        yield _LAST


def _role_of(message: object) -> str | None:
    role = message.get("role") if isinstance(message, Mapping) else None
    return role if isinstance(role, str) else None


def _unique(faults: Iterator[Fault]) -> Iterator[Fault]:
    yield from dict.fromkeys(faults)


def _message_faults(message: object) -> Iterator[Fault]:
    if not isinstance(message, Mapping):
        yield _MESSAGE_TYPE
        return
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        yield _role_fault(role)
    content = message.get("content")
    if content is None:
        if not _has_calls(message):
            yield _NO_CONTENT
    elif isinstance(content, str):
        if _broken(content):
            yield _UNICODE
    elif as_list(content) is None:
        yield _CONTENT_TYPE


def _role_fault(role: object) -> Fault:
    shown = _shorten(role)
    meant = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}
    near = meant.get(role) if isinstance(role, str) else None
    hint = f"reprise data convert IN OUT --role {role}={near}" if near else "use one of the roles"
    return Fault("data-prompt-role", f"unknown role {shown}; allowed: {', '.join(ROLES)}", hint)


def _has_calls(message: Mapping[str, Any]) -> bool:
    """An assistant's message may consist of calls to tools alone."""
    calls = as_list(message.get("tool_calls"))
    return calls is not None and len(calls) > 0


def _is_blank(message: object) -> bool:
    if not isinstance(message, Mapping) or _has_calls(message):
        return False
    content = message.get("content")
    return isinstance(content, str) and not content.strip()


def _reward_faults(reward: object, custom_reward: bool) -> Iterator[Fault]:
    if not isinstance(reward, Mapping):
        yield _REWARD_TYPE
        return
    truth = reward.get("ground_truth")
    if truth is None:
        yield _NO_TRUTH
    elif isinstance(truth, str):
        if _broken(truth):
            yield _UNICODE
        elif not truth.strip():
            yield _BLANK_TRUTH
        elif truth != truth.strip():
            yield _SPACED_TRUTH
    elif not custom_reward and not _is_search_target(truth):
        kind = "list" if as_list(truth) is not None else type(truth).__name__
        yield Fault(
            "data-ground-truth",
            f"ground_truth is of type {kind}, not a string: the scorers call string methods on it",
            f"{_CONVERT} writes numbers as strings and rejects the rest",
        )


def _is_search_target(truth: object) -> bool:
    """verl's search scorer (search_r1_like_qa_em.py at 220e903) reads ground_truth['target']."""
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
