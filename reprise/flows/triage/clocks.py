"""The clocks of the hosts whose logs are collected: measured with them, kept beside them.

A host's script prints its clock before and after its work. This machine's clock around the whole
call bounds what the host's clock is ahead from both sides, however long the work took.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from reprise.cluster.answer import Answer
from reprise.core.files import dump_json
from reprise.triage.model import Clock

__all__ = ["CLOCKS", "CLOCK_SCRIPT", "HostClock", "measure", "read_clocks", "write_clocks"]

CLOCKS = "clocks.json"
"""In the folder of an attempt's hosts."""

CLOCK_SCRIPT = 'date "+clock %s.%N %z"\n' * 2
"""Prints the clock, on a connection that stands: nothing but the answer takes time."""

# A date without nanoseconds (BusyBox) prints whole seconds, and what it did not understand.
_LINE = re.compile(r"^clock (\d+)(?:\.(\d+))?\S* ([+-])(\d\d)(\d\d)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HostClock:
    """A host's clock against this machine's, in seconds: `ahead`, give or take `within`.

    `zone` is what the host's local time is ahead of UTC: most logs print local time.
    """

    ahead: float
    within: float
    zone: float


def measure(*answers: Answer) -> HostClock | None:
    """The clock of the host that gave `answers`, by all of them together.

    None when it printed no clock, or set it meanwhile.
    """
    bounds = [found for answer in answers if (found := _bounds(answer)) is not None]
    if not bounds:
        return None
    least, most = max(bound[0] for bound in bounds), min(bound[1] for bound in bounds)
    if most < least:
        return None
    return HostClock((least + most) / 2, (most - least) / 2, bounds[-1][2])


def _bounds(answer: Answer) -> tuple[float, float, float] | None:
    """What the host's clock is ahead at least and at most, and its zone."""
    stamps = [
        (float(f"{whole}.{part or 0}"), 0.0 if part else 1.0, sign, hours, minutes)
        for whole, part, sign, hours, minutes in _LINE.findall(answer.output)
    ]
    if len(stamps) < 2:
        return None
    first, last = stamps[0], stamps[-1]
    _, _, sign, hours, minutes = last
    zone = (int(hours) * 3600.0 + int(minutes) * 60.0) * (-1 if sign == "-" else 1)
    return last[0] - answer.ended, first[0] + first[1] - answer.began, zone


def write_clocks(folder: Path, head: str, clocks: Mapping[tuple[str, str], HostClock]) -> None:
    """Keep the clocks of hosts (name, address) in `folder`; the job's own log is `head`'s.

    Raises OSError where the folder cannot be written.
    """
    hosts = [
        {
            "name": name,
            "address": address,
            "ahead": round(clock.ahead, 4),
            "within": round(clock.within, 4),
            "zone": clock.zone,
        }
        for (name, address), clock in clocks.items()
    ]
    dump_json(folder / CLOCKS, {"schema": 1, "head": head, "hosts": hosts})


def read_clocks(
    folders: Sequence[Path], given: Mapping[str, Clock] | None = None
) -> dict[str, Clock]:
    """The clocks kept in `folders`, by host name and by address; the head's also without a name.

    Local times of hosts in another zone than the head's are brought to its zone. A clock in
    `given` replaces the measured one of that host. A file that cannot be read gives none.
    """
    given = given or {}
    found: dict[str, Clock] = {}
    for folder in folders:
        try:
            value = orjson.loads((folder / CLOCKS).read_bytes())
            found |= _by_name(str(value["head"]), value["hosts"], given)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found | dict(given)


def _by_name(
    head: str, hosts: Sequence[Mapping[str, object]], given: Mapping[str, Clock]
) -> dict[str, Clock]:
    zones = {str(host["name"]): _number(host["zone"]) for host in hosts}
    base = zones.get(head, next(iter(zones.values()), 0.0))
    found: dict[str, Clock] = {}
    for host in hosts:
        name, address = str(host["name"]), str(host["address"])
        ahead = _number(host["ahead"]) + zones[name] - base
        measured = Clock(ahead, _number(host["within"]))
        clock = given.get(name) or given.get(address) or measured
        found |= {key: clock for key in (name, address) if key}
        if name == head:
            found[""] = clock
    return found


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)
