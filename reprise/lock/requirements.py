"""Requirements files with hashes: what they pin, in a form that layout and comments do not move."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from reprise.core.errors import OperatorError
from reprise.core.files import sha256_text

__all__ = ["Pin", "pins_sha256", "read_pins"]

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, order=True)
class Pin:
    """One pinned distribution: its canonical name, exact version, marker and allowed hashes."""

    name: str
    version: str
    marker: str
    sha256: tuple[str, ...]

    def canonical(self) -> str:
        """The pin as one line; equal pins give equal lines."""
        return " ".join((f"{self.name}=={self.version}", self.marker, *self.sha256))


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines joined at their backslashes, without comments, each with the number of its first."""
    result: list[tuple[int, str]] = []
    start, parts = 0, list[str]()
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).rstrip()
        start = start if parts else number
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            result.append((start, " ".join(parts).strip()))
            parts = []
    if parts:
        result.append((start, " ".join(parts).strip()))
    return [(number, line) for number, line in result if line]


def _pin(line: str) -> Pin:
    """Read one logical line; raises ValueError with what is wrong about it."""
    hashes = tuple(sorted(_HASH.findall(line)))
    try:
        requirement = Requirement(_HASH.sub("", line).strip())
    except InvalidRequirement as error:
        raise ValueError(f"is not a requirement: {str(error).splitlines()[0]}") from None
    versions = [spec.version for spec in requirement.specifier if spec.operator == "=="]
    if len(versions) != 1 or len(requirement.specifier) != 1 or "*" in versions[0]:
        raise ValueError("does not pin one exact version with ==")
    if not hashes:
        raise ValueError("has no --hash=sha256:…")
    marker = str(requirement.marker) if requirement.marker else ""
    return Pin(canonicalize_name(requirement.name), versions[0], marker, hashes)


def read_pins(path: Path) -> tuple[Pin, ...]:
    """The pins of a requirements file, sorted; pip's own options (`--…` lines) are passed over.

    Raises OperatorError naming every line that is not an exact pin with hashes, OSError as the
    file system gives it.
    """
    pins: list[Pin] = []
    wrong: list[str] = []
    for number, line in _logical_lines(path.read_text(encoding="utf-8")):
        if line.startswith("-"):
            continue
        try:
            pins.append(_pin(line))
        except ValueError as error:
            wrong.append(f"line {number} {error}")
    if wrong:
        raise OperatorError(
            "requirements-pinned.every-requirement-must", str(path), wrongs="; ".join(wrong)
        )
    return tuple(sorted(pins))


def pins_sha256(pins: tuple[Pin, ...]) -> str:
    """The digest of a set of pins: one canonical line each, sorted."""
    return sha256_text("".join(f"{pin.canonical()}\n" for pin in sorted(pins)))
