"""Lengths of prompts in tokens: by the model's own template and tokenizer, or by an estimate."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from reprise.core.errors import CannotTell

__all__ = ["CHARS_PER_TOKEN", "ChatTokenizer", "has_processor"]

# English mathematics has 3 to 4 characters per token, so 3 overestimates the length. Chinese has
# fewer, so its length is underestimated: the report says so.
CHARS_PER_TOKEN = 3


class ChatTokenizer:
    """A model folder's chat template and fast tokenizer, without transformers.

    The template is rendered as transformers does (sandboxed Jinja2, trimmed blocks, its helper
    functions), and encoded without further special tokens, as apply_chat_template does.
    """

    def __init__(self, folder: Path) -> None:
        """Raises CannotTell when the folder has no tokenizer.json or no chat template."""
        self.folder = folder
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:
            raise _no_tokenizer(folder, f"tokenizer.json: {error}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = _read_json(folder / "tokenizer_config.json")
        self._special = {
            name: _content(config[name])
            for name in ("bos_token", "eos_token", "pad_token", "unk_token")
            if config.get(name)
        }
        # As in transformers: a special token that tokenizer.json lacks is still one token.
        self._tokenizer.add_special_tokens(sorted(set(self._special.values())))
        try:
            self._template = _environment().from_string(_template(folder, config))
        except jinja2.TemplateSyntaxError as error:
            raise _no_tokenizer(folder, f"chat template: {error}") from None

    def lengths(self, prompts: Sequence[Sequence[Mapping[str, Any]]]) -> list[int | None]:
        """The number of tokens of each prompt with the generation prompt after it.

        None where the template refuses the messages.
        """
        texts = [self._render(messages) for messages in prompts]
        whole = [text for text in texts if text is not None]
        encoded = iter(self._tokenizer.encode_batch(whole, add_special_tokens=False))
        return [None if text is None else len(next(encoded).ids) for text in texts]

    def _render(self, messages: Sequence[Mapping[str, Any]]) -> str | None:
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=True, **self._special
            )
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError):
            return None


def has_processor(folder: Path) -> bool:
    """Does a model's folder have a processor of images or videos?"""
    names = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
    return any((folder / name).is_file() for name in names)


def _no_tokenizer(folder: Path, reason: str) -> CannotTell:
    return CannotTell("data-length.no-tokenizer", str(folder), reason=reason)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _no_tokenizer(path.parent, f"{path.name}: {error}") from None
    return value if isinstance(value, dict) else {}


def _template(folder: Path, config: Mapping[str, Any]) -> str:
    """chat_template.jinja, or the entry of tokenizer_config.json (one text or named ones)."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {item.get("name"): item.get("template") for item in template}
        template = named.get("default")
    if not isinstance(template, str):
        raise _no_tokenizer(folder, "chat template not found")
    return template


def _content(token: object) -> str:
    return str(token["content"]) if isinstance(token, dict) else str(token)


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's text for masks; for lengths it is a plain block."""

    tags = {"generation"}  # noqa: RUF012  (declared so by Jinja2)

    def parse(self, parser: Any) -> Any:
        """Replace the block by its content."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, jinja2.ext.loopcontrols],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    return environment


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)
