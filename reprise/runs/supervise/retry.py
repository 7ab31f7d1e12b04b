"""Decide whether a failed attempt is repeated: failures that would occur again are not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import orjson

from reprise.triage.patterns import load_library

__all__ = [
    "BadHost",
    "Failure",
    "Policy",
    "Triaged",
    "read_triaged",
    "why_not_again",
    "why_repeated",
]

_VARIABLE = re.compile(r"0x[0-9a-f]+|\d+")
# An exception of these kinds before the first step of a run that has trained nothing yet: the
# configuration or the input is wrong, and still is at the next attempt.
_CONFIG = re.compile(
    r"^(?:[\w.]*\.)?(?:Config\w*Error|ConfigKeyError|ConfigAttributeError|MissingConfigException|"
    r"MissingMandatoryValue|InterpolationKeyError|HydraException|OverrideParseException|"
    r"ValidationError|GrammarParseError|UnsupportedInterpolationType|"
    r"ModuleNotFoundError|ImportError|AttributeError|NotImplementedError|AssertionError|"
    r"TypeError|ValueError|NameError|SyntaxError|KeyError|IndexError)\b"
)
_DATA = re.compile(
    r"^(?:[\w.]*\.)?(?:FileNotFoundError|NotADirectoryError|IsADirectoryError|ArrowInvalid|"
    r"SafetensorError|HFValidationError|RepositoryNotFoundError|LocalEntryNotFoundError|"
    r"DatasetGenerationError|UnicodeDecodeError)\b"
)
_MEMORY = re.compile(
    r"^(?:[\w.]*\.)?(?:OutOfMemoryError|MemoryError)\b|out of memory|Insufficient\w* memory",
    re.IGNORECASE,
)
_DISK = re.compile(r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]")
_READ_ONLY = re.compile(r"Read-only file system|\[Errno 30\]|Permission denied|\[Errno 13\]")


# A process, a node or a connection is gone: the text is the same whatever the reason was.
_GONE = re.compile(
    r"ActorDied|ActorUnavailable|WorkerCrashed|NodeDied|RayletUnavailable|EngineDead|"
    r"ObjectLost|OwnerDied|Connection|Timeout|Broken ?[Pp]ipe|SIGKILL|unexpectedly|"
    r"exit code (?:137|143|-9|-15)\b"
)
_Rules = tuple[tuple[re.Pattern[str], str], ...]
_ALWAYS: _Rules = (
    (_DISK, "the storage is full: free space first"),
    (_READ_ONLY, "a file cannot be written: correct its permissions or its mount first"),
)
_INVALID = "the configuration or the code is invalid: the next attempt would fail the same way"
_FRESH: _Rules = (
    (_MEMORY, "out of memory before the first step: the next attempt needs the same memory"),
    (_DATA, "the data or the model cannot be read: the next attempt would fail the same way"),
    (_CONFIG, _INVALID),
)
# Triage's category of a configuration that Hydra or verl refuses.
_REFUSED = "config_error"


@dataclass(frozen=True, slots=True)
class Triaged:
    """What triage says about a failure: its kind, the host, and whether a retry can help.

    `retry` is again, exclude_host (the host is bad) or never (the next attempt fails alike).
    """

    title: str
    retry: str
    host: str = ""

    @property
    def blames_host(self) -> bool:
        """Whether a host is bad: another attempt helps without that host only."""
        return self.retry == "exclude_host"


@dataclass(frozen=True, slots=True)
class BadHost:
    """A host that a failure is blamed on, and why.

    `obstacle` says why no other host takes its place; empty: another one does.
    """

    host: str
    reason: str
    obstacle: str = ""


def read_triaged(file: Path, attempt: int) -> Triaged | None:
    """The root cause that triage.json gives for `attempt`; None where there is none."""
    try:
        value = orjson.loads(file.read_bytes())
        root = value["root"]
        if value["attempt"] != attempt or root is None:
            return None
        return Triaged(str(value["title"]), str(value["retry"]), str(root["host"] or ""))
    except (OSError, ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt failed: its first error, and the last step that it recorded (None: none).

    `resumed_from` is the step of the checkpoint that it began with. `lost`: its job was out of
    sight at its end, so that `error` says nothing of the reason.
    """

    error: str
    reached: int | None
    resumed_from: int | None = None
    triaged: Triaged | None = None
    lost: bool = False

    @property
    def fresh(self) -> bool:
        """Whether it failed before it had trained a step, and not from a checkpoint."""
        return not self.reached and self.resumed_from is None

    def same_as(self, other: Failure) -> bool:
        """Whether both failed with the same error at the same step; numbers are ignored.

        The loss of a process does not show its reason: such failures never count as the same.
        """
        if self.lost or other.lost:
            return False
        kinds = {_VARIABLE.sub("#", item.error) for item in (self, other)}
        alike = len(kinds) == 1 and self.reached == other.reached
        return alike and bool(self.error) and not _GONE.search(self.error)


@dataclass(frozen=True, slots=True)
class Policy:
    """At most `attempts` of one command; waits grow from `first_wait` to `longest_wait` seconds."""

    attempts: int = 3
    first_wait: float = 15.0
    longest_wait: float = 600.0

    def wait(self, failed: int) -> float:
        """Seconds to wait after the failure number `failed` (from 1) of this command."""
        return float(min(self.first_wait * 2 ** (failed - 1), self.longest_wait))


def why_not_again(failure: Failure) -> str | None:
    """Why another attempt would fail the same way on any hosts; None when it is worth trying."""
    rules: _Rules = (*_ALWAYS, *(_FRESH if failure.fresh else ()))
    for pattern, why in rules:
        if pattern.search(failure.error):
            return why
    if failure.fresh and _is_refused(failure.error):
        return _INVALID
    triaged = failure.triaged
    if triaged is not None and triaged.retry == "never" and failure.fresh:
        return f"{triaged.title}: the next attempt would fail alike"
    return None


def why_repeated(failure: Failure, before: Failure | None) -> str | None:
    """Why another attempt on the same hosts would fail the same way; None: worth trying."""
    if before is not None and failure.same_as(before):
        return "the previous attempt failed the same way at the same step"
    return None


def _is_refused(error: str) -> bool:
    """Whether triage's patterns know the line as a refused configuration."""
    pattern = load_library().first(error)
    return pattern is not None and pattern.category == _REFUSED
