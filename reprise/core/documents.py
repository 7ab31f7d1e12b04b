"""JSON files that programs read: a pydantic model each, a version, and a schema in docs/schemas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from reprise.core.errors import OperatorError
from reprise.core.files import dump_json

__all__ = ["Document", "Kind", "Part", "read_document", "write_document"]

_SHOWN = 60


class Part(BaseModel):
    """A table of a document. A key that this version does not know is kept and written back."""

    model_config = ConfigDict(
        strict=True,
        extra="allow",
        validate_assignment=True,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        # As written, every key is there.
        json_schema_serialization_defaults_required=True,
        # Most commands read none of them.
        defer_build=True,
    )

    def to_json(self) -> dict[str, Any]:
        """The part as JSON values, every key of it."""
        return self.model_dump(mode="json")


class Document(Part):
    """A whole file. Subclasses have `schema_version` (`schema` in the file), a number from 1."""


D = TypeVar("D", bound=Document)


@dataclass(frozen=True, slots=True)
class Kind:
    """How faults of a document are reported.

    `rule` names the finding, `noun` the document ("the state of a run"), `fix` what to do when its
    contents are wrong, `absent` when the file is not there.
    """

    rule: str
    noun: str
    version: int
    fix: str
    absent: str


def read_document(
    model: type[D], path: Path, kind: Kind, migrate: Callable[[dict[str, Any]], None] | None = None
) -> D:
    """The document in the file `path`.

    A file without `schema` was written before its kind had a version: `migrate` changes its
    contents, in place, to those of version 1. Raises OperatorError that names the file, and every
    key that is wrong with what was expected and found.
    """
    try:
        value = orjson.loads(path.read_bytes())
    except OSError as error:
        fix = kind.absent if isinstance(error, FileNotFoundError) else _readable(path)
        message = f"expected {kind.noun}, and the file cannot be read: {error.strerror}"
        raise OperatorError(kind.rule, str(path), message, fix) from None
    except orjson.JSONDecodeError as error:
        where = f"{path}:{error.lineno}"
        message = f"expected {kind.noun} as JSON, found: {error.msg}"
        raise OperatorError(kind.rule, where, message, kind.fix) from None
    if not isinstance(value, dict):
        message = f"expected {kind.noun} as one JSON object, found {_shown(value)}"
        raise OperatorError(kind.rule, str(path), message, kind.fix)
    _check_version(value, path, kind)
    if "schema" not in value:
        if migrate is not None:
            migrate(value)
        value["schema"] = 1
    try:
        # Strict, as JSON: the text "4" is not the number 4, yet the text of an enum is its member.
        return model.model_validate_json(orjson.dumps(value))
    except ValidationError as error:
        faults = "; ".join(_fault(item) for item in error.errors(include_url=False))
        raise OperatorError(kind.rule, str(path), faults, kind.fix) from None


def write_document(path: Path, document: Document) -> None:
    """Write `document` to `path`, whole or not at all. Raises OSError of the file system."""
    dump_json(path, document.to_json())


def _check_version(value: dict[str, Any], path: Path, kind: Kind) -> None:
    version = value.get("schema", 1)
    if type(version) is int and 1 <= version <= kind.version:
        return
    expected = "1" if kind.version == 1 else f"1 to {kind.version}"
    fix = kind.fix
    if type(version) is int and version > kind.version:
        fix = "a newer Reprise wrote it: use that one, or update this checkout (git pull)"
    message = f"schema: expected {expected}, found {_shown(version)}"
    raise OperatorError(kind.rule, str(path), message, fix)


def _fault(item: ErrorDetails) -> str:
    """One of pydantic's errors: the key, what was expected, what was found."""
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "missing":
        return f"{key}: expected a value, found none"
    expected = item["msg"].replace("Input should be ", "").replace("Object should ", "")
    return f"{key}: expected {expected}, found {_shown(item['input'])}"


def _shown(value: object) -> str:
    text = orjson.dumps(value, default=str).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _readable(path: Path) -> str:
    return f"make it readable for this user: chmod u+r {path}, or use its owner's account"
