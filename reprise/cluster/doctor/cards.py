"""Accelerators of a host, from nvidia-smi or mthreads-gmi."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reprise.cluster.doctor.facts import Facts

__all__ = ["Card", "Use", "cards", "in_use"]

# mthreads-gmi 1.14 to 2.4 print a block of three lines a card (public logs of S80, S3000, S5000);
# the driver's version stands in the head, processes in a table of their own.
_GMI_DRIVER = re.compile(r"Driver Version:\s*(\S+)")
_GMI_CARD = re.compile(
    r"^(\d+)\s+(MTT \S+(?: \S+)*?)\s*\|\s*([0-9a-fA-F:.]+)\s*\|\s*\d+%\s+(\d+)MiB\s*\((\d+)MiB\)"
)
_GMI_PROCESS = re.compile(r"^(\d+)\s+(\d+)\s+\S.*?\s(\d+)MiB\s*$")


@dataclass(frozen=True, slots=True)
class Card:
    """One card; memory in MiB."""

    index: int
    name: str
    total: int
    used: int
    driver: str
    bus: str
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    """A process that holds memory of a card; `owner` is its user, memory in MiB."""

    card: str
    pid: int
    owner: str
    used: int


def cards(facts: Facts, accelerator: str) -> list[Card] | None:
    """The cards of kind `accelerator` (nvidia or mthreads); None when they could not be read."""
    key = f"gpu.{accelerator}"
    if facts.why(key) is not None or (key not in facts.values and not facts.complete):
        return None
    lines = facts.all(key)
    return _gmi(lines) if accelerator == "mthreads" else _smi(lines)


def _smi(lines: Sequence[str]) -> list[Card] | None:
    found = []
    for line in lines:
        parts = [part.strip() for part in line.split(",")]
        # A card that has fallen off the bus prints an error text in place of its row.
        if len(parts) != 7 or not parts[0].isdigit():
            if "No devices were found" in line:
                return []
            return None
        index, name, total, used, driver, bus, uuid = parts
        if not (total.isdigit() and used.isdigit()):
            return None
        found.append(Card(int(index), name, int(total), int(used), driver, bus, uuid))
    return found


def _gmi(lines: Sequence[str]) -> list[Card] | None:
    driver = next((match[1] for line in lines if (match := _GMI_DRIVER.search(line))), "")
    if not driver:
        return None
    return [
        Card(int(match[1]), match[2], int(match[5]), int(match[4]), driver, match[3])
        for line in lines
        if (match := _GMI_CARD.match(line))
    ]


def in_use(facts: Facts, accelerator: str) -> list[Use]:
    """Processes that hold a card."""
    owners = {int(pid): name.strip() for pid, name in facts.pairs("owner").items() if pid.isdigit()}
    found = []
    if accelerator == "mthreads":
        for line in facts.all("gpu.mthreads"):
            if match := _GMI_PROCESS.match(line):
                pid = int(match[2])
                found.append(Use(match[1], pid, owners.get(pid, "unknown"), int(match[3])))
        return found
    for line in facts.all("gpu.app"):
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and parts[1].isdigit():
            pid = int(parts[1])
            used = int(parts[2]) if parts[2].isdigit() else 0
            found.append(Use(parts[0], pid, owners.get(pid, "unknown"), used))
    return found
