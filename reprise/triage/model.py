"""What triage works with: events of a log, groups of equal events, the diagnosis."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["TIERS", "Clock", "Diagnosis", "Event", "Group", "Mark", "Role", "State", "Step"]


class Role(StrEnum):
    """What a line can be in a failure."""

    ROOT = "root"
    CASCADE = "cascade"
    CONFIRMATION = "confirmation"
    NOISE = "noise"
    TEARDOWN = "teardown"
    SUCCESS = "success"


class State(StrEnum):
    """The answer of triage."""

    ROOT = "root_cause"
    NO_PRIMARY_CAUSE = "no_primary_cause"
    NO_FAILURE = "no_failure"
    UNKNOWN = "unknown"


TIERS = ("named by a pattern", "an exception that ended a process", "an exception", "a bare line")
"""How well a candidate is supported, the best first."""


@dataclass(frozen=True, slots=True)
class Clock:
    """How many seconds a host's clock is ahead, give or take `within`."""

    ahead: float
    within: float = 0.0


@dataclass(slots=True)
class Event:
    """One line of a log that matters.

    `line` counts from 1. `stamp` is seconds since the epoch by the log's own clock, None when the
    line and the lines before it have none; `exact` says whether it is the line's own. `yearless`
    stamps count from the beginning of the year 2000 until the year is known. The stamp is `coarse`
    when it has whole seconds, or is that of an earlier line.
    """

    file: str
    line: int
    role: Role
    pattern: str
    category: str
    text: str
    key: str
    process: str = ""
    pid: str = ""
    ip: str = ""
    host: str = ""
    rank: int | None = None
    stamp: float | None = None
    exact: bool = False
    yearless: bool = False
    coarse: bool = False
    level: str = ""
    exception: str = ""
    frames: tuple[str, ...] = ()
    frames_lines: tuple[int, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    phase: str = ""
    tier: int = 0
    handled: bool = False
    announced: bool = False
    chain: int = 0
    links: int = 0
    direct: bool = False
    epoch: int = 0
    repeats: int = 1


@dataclass(slots=True)
class Group:
    """Equal events of one file: the first, the first after the last training step, the last."""

    first: Event
    late: Event
    last: Event
    count: int = 0
    ranks: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Mark:
    """A line that ends something: the job's success, or a stop from outside."""

    file: str
    line: int
    process: str
    epoch: int
    stamp: float | None
    text: str
    pattern: str
    yearless: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A training step that a log records."""

    file: str
    line: int
    step: int
    stamp: float | None
    yearless: bool = False


@dataclass(slots=True)
class Diagnosis:
    """What the logs say about a failure.

    `cascade` and the other lists are in order of time; each entry is a folded group of equal
    lines. `certain` is false when another host's candidate is as early as its clock can tell.
    """

    state: State
    category: str
    root: Group | None
    cascade: list[Group] = field(default_factory=list)
    confirmations: list[Group] = field(default_factory=list)
    recovered: list[Group] = field(default_factory=list)
    rivals: list[Group] = field(default_factory=list)
    steps: int | None = None
    success: Mark | None = None
    teardown: Mark | None = None
    missing_ranks: tuple[int, ...] = ()
    certain: bool = True
    notes: list[str] = field(default_factory=list)
