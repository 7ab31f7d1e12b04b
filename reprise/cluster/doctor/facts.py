"""The output of a host's probe as facts by key; scripts/probe.sh prints them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Address", "Disk", "Facts", "parse_facts"]

_LINK = re.compile(r"^\d+:\s+([^:@\s]+)(?:@\S+)?:\s.*?\bmtu (\d+)")
_ADDRESS = re.compile(r"^\d+:\s+(\S+?)(?:@\S+)?\s+inet6?\s+([0-9a-fA-F.:]+)(?:/(\d+))?")


@dataclass(frozen=True, slots=True)
class Address:
    """An address of the host and its network interface; `prefix` is the length of the network."""

    interface: str
    ip: str
    prefix: int

    @property
    def local(self) -> bool:
        """Whether no other host can use it (loopback or link-local)."""
        address = ipaddress.ip_address(self.ip)
        return address.is_loopback or address.is_link_local


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system of a path: bytes in all and free, writable, and whether the path exists.

    `files` counts the files that can still be made; None where the file system has no limit.
    """

    path: str
    total: int
    free: int
    writable: bool
    present: bool
    files: int | None = None


@dataclass(slots=True)
class Facts:
    """Facts of one host by key. A key in neither mapping was not requested."""

    host: str
    values: Mapping[str, Sequence[str]]
    blanks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    began: float = 0.0
    ended: float = 0.0

    def all(self, key: str) -> Sequence[str]:
        """Every value of `key`, in order."""
        return self.values.get(key, ())

    def one(self, key: str) -> str | None:
        """The first value of `key`."""
        found = self.values.get(key)
        return found[0] if found else None

    def why(self, key: str) -> str | None:
        """Why `key` could not be read; None when it was read, or was not requested."""
        found = self.blanks.get(key)
        return found[0] if found else None

    def pairs(self, key: str) -> dict[str, str]:
        """Values of the form `NAME REST` as a mapping."""
        return {value.partition(" ")[0]: value.partition(" ")[2] for value in self.all(key)}

    @property
    def complete(self) -> bool:
        """Whether the probe ran to its end."""
        return self.one("complete") == "yes"

    def addresses(self) -> list[Address]:
        """Addresses of all network interfaces."""
        found = []
        for value in self.all("address"):
            if match := _ADDRESS.match(value):
                full = 32 if "." in match[2] else 128
                found.append(Address(match[1], match[2], int(match[3] or full)))
        return found

    def mtu(self, interface: str) -> int | None:
        """The packet size of an interface, as `ip link` shows it."""
        for value in self.all("link"):
            match = _LINK.match(value)
            if match is not None and match[1] == interface:
                return int(match[2])
        return None

    def route_source(self) -> str | None:
        """The source address of this host's packets to the head: `src` of `ip route get`."""
        match = re.search(r"\bsrc (\S+)", self.one("route") or "")
        return match[1] if match else None

    def disks(self) -> list[Disk]:
        """The requested paths."""
        found = []
        inodes = {path: count for count, _, path in (v.partition(" ") for v in self.all("inodes"))}
        for value in self.all("disk"):
            total, free, mode, there, path = value.split(" ", 4)
            found.append(
                Disk(
                    path,
                    int(total) * 1024,
                    int(free) * 1024,
                    mode == "w",
                    there == "present",
                    int(count) if (count := inodes.get(path, "")).isdigit() else None,
                )
            )
        return found

    def shm(self) -> tuple[int, int] | None:
        """Bytes of the shared memory file system, in all and free."""
        parts = (self.one("shm") or "").split()
        return (int(parts[0]) * 1024, int(parts[1]) * 1024) if len(parts) == 2 else None

    def devices(self, vendor: str) -> tuple[int, int]:
        """GPUs of a PCI vendor on the bus, without those of virtual machines, and device files."""
        bus = [value.split(" ") for value in self.all("pci")]
        given = sum(words[0] == vendor and words[-1] != "vfio-pci" for words in bus)
        return given, sum(value.startswith(f"{vendor} ") for value in self.all("device"))

    def memory(self, key: str = "MemTotal") -> int | None:
        """MemTotal or MemAvailable in bytes; a limit of the control group counts for the total."""
        text = self.pairs("memory").get(f"{key}:", "").strip().split(" ")[0]
        if not text.isdigit():
            return None
        limit = self.one("memory.limit") or ""
        total = int(text) * 1024
        return min(total, int(limit)) if key == "MemTotal" and limit.isdigit() else total

    def limit(self, name: str) -> float | None:
        """The soft limit `Max <name>` of a process; infinity for unlimited."""
        for value in self.all("limit"):
            if value.startswith(f"Max {name} "):
                soft = value.removeprefix(f"Max {name} ").split()[0]
                return float("inf") if soft == "unlimited" else float(soft)
        return None

    def number(self, key: str) -> float | None:
        """A fact that is a count; infinity for `max`, None where it was not read."""
        text = self.one(key) or ""
        return float("inf") if text == "max" else float(text) if text.isdigit() else None

    def environment(self) -> dict[str, str]:
        """The requested variables that are set; passwords in addresses are masked."""
        return {name: text.strip() for name, text in self.pairs("env").items()}


def parse_facts(host: str, output: str, began: float = 0.0, ended: float = 0.0) -> Facts:
    """Facts from the probe's output; lines of an unknown form are dropped."""
    values: dict[str, list[str]] = {}
    blanks: dict[str, list[str]] = {}
    for line in output.splitlines():
        kind, _, rest = line.partition(" ")
        key, _, value = rest.partition(" ")
        if kind == "=" and key:
            values.setdefault(key, []).append(value)
        elif kind == "?" and key:
            blanks.setdefault(key, []).append(value)
    return Facts(host, values, blanks, began, ended)
