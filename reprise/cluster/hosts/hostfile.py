"""The hostfile: which hosts, how many accelerators each, the first one is the head.

    gpu-a slots=8                     the form of DeepSpeed and Open MPI
    gpu-b:4                           the short form
    gpu-c slots=8 ip=10.8.0.13        its address on the training network
    alice@gpu-d port=2222             or user=alice; else ssh_config decides
    node[01-16] slots=8               sixteen hosts
    gpu-e slots=8 spare=yes           Ray starts on it when it replaces another host
    [fd00::12]:8                      IPv6 in brackets

All errors are reported in one pass, with their lines, before any host is contacted.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reprise.cluster.hosts.hostline import RULE, Host, hosts_of
from reprise.cluster.hosts.names import fold, unfold
from reprise.core.errors import OperatorError
from reprise.core.findings import Report

__all__ = ["DEFAULT_SLOTS", "Host", "Hostfile", "named_hosts", "read_hostfile"]

DEFAULT_SLOTS = 8
"""Default accelerators of a host: the number that machines of all training profiles have."""


@dataclass(frozen=True, slots=True)
class Hostfile:
    """A valid hostfile. `hosts` is in the file's order, the head first."""

    path: Path
    hosts: tuple[Host, ...]

    @property
    def head(self) -> Host:
        """The first host."""
        return self.hosts[0]

    @property
    def slots(self) -> int:
        """Accelerators of all hosts together, without spare ones."""
        return sum(host.slots for host in self.hosts if not host.spare)


def read_hostfile(
    path: Path,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    default_slots: int = DEFAULT_SLOTS,
) -> tuple[Report, Hostfile | None]:
    """Read `path`; the second value is None when the report has an error. `-` is standard input.

    `include` and `exclude` hold names as `names.unfold` reads them. No host is contacted.
    """
    report = Report("hosts")
    if str(path) == "-":
        path = Path("/dev/stdin")
    text = _read(path, report)
    if text is None:
        return report, None
    hosts = _parse(text, path, report, default_slots)
    _duplicates(hosts, path, report)
    _loopback(hosts, path, report)
    if not hosts and not list(report.errors()):
        report.failed("hostfile.empty", str(path))
    chosen = _choose(hosts, unfold(include), unfold(exclude), path, report)
    if list(report.errors()):
        return report, None
    report.passed(RULE)
    report.data["hosts"] = [host.to_json() for host in chosen]
    return report, Hostfile(path.absolute(), tuple(chosen))


def named_hosts(words: Sequence[str]) -> tuple[Report, tuple[Host, ...]]:
    """Hosts from arguments, each in the form of a hostfile's line; empty after any error."""
    report = Report("hosts")
    hosts: dict[tuple[str, int | None], Host] = {}
    for number, word in enumerate(words, start=1):
        where = word if word.isprintable() else ascii(word)
        for host in hosts_of(word, number, DEFAULT_SLOTS, report, where):
            hosts.setdefault((_same(host.name), host.port), host)
    report.settle(RULE)
    return report, () if list(report.errors()) else tuple(hosts.values())


def _read(path: Path, report: Report) -> str | None:
    """The file's text without its byte order mark; `_parse` removes line ends."""
    full = path.absolute()
    # A pipe or a terminal, as /dev/stdin and <(command) are.
    readable = full.is_file() or full.is_fifo() or full.is_char_device()
    if not readable:
        near = _similar(full)
        similar = f"; similar names: {', '.join(near)}" if near else ""
        if full.exists():
            report.failed("hostfile.not-a-file", str(full), similar=similar)
        else:
            report.failed("hostfile.not-found", str(full), similar=similar)
        return None
    raw = full.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        guess = ", probably UTF-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        report.failed("hostfile.not-utf8", f"{path}:{line}", guess=guess)
        return None
    if "\r\n" in text:
        report.note("hostfile.windows", str(path))
    return text


def _similar(path: Path) -> list[str]:
    """Files with a similar name in the same folder, or in the folder without blanks around it."""
    near: list[str] = []
    for folder in dict.fromkeys([path.parent, Path(str(path.parent).strip())]):
        if folder.is_dir():
            names = [entry.name for entry in folder.iterdir() if entry.is_file()]
            close = difflib.get_close_matches(path.name.strip(), names, n=3, cutoff=0.5)
            near += [str(folder / name) for name in close]
    return near


def _parse(text: str, path: Path, report: Report, default_slots: int) -> list[Host]:
    hosts = []
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.removesuffix("\r")
        content = line.split("#", 1)[0].strip(" \t")
        if not content:
            continue
        hosts += hosts_of(content, number, default_slots, report, f"{path}:{number}")
    return hosts


def _duplicates(hosts: Sequence[Host], path: Path, report: Report) -> None:
    seen: dict[tuple[str, object], int] = {}
    for host in hosts:
        keys: list[tuple[str, object]] = [("host", (_same(host.name), host.port))]
        keys += [("ip", host.ip)] if host.ip else []
        for kind, value in keys:
            if (kind, value) in seen:
                shown = host.name if kind == "host" else f"ip={host.ip}"
                report.failed(
                    "hostfile.duplicate",
                    f"{path}:{host.line}",
                    host=shown,
                    line=seen[kind, value],
                )
            seen.setdefault((kind, value), host.line)


def _same(name: str) -> str:
    """A form in which two ways to write one name are equal: NODE2, node2. and node2."""
    return name.lower().removesuffix(".")


def _loopback(hosts: Sequence[Host], path: Path, report: Report) -> None:
    """A loopback name among several hosts means a different machine on each of them."""
    for host in hosts if len(hosts) > 1 else ():
        if host.ip is None and (host.name == "localhost" or host.name.startswith("127.")):
            report.failed("hostfile.loopback", f"{path}:{host.line}", host=host.name)


def _choose(
    hosts: Sequence[Host], include: list[str], exclude: list[str], path: Path, report: Report
) -> list[Host]:
    names = {_same(host.name) for host in hosts}
    for option, wanted in (("--include", include), ("--exclude", exclude)):
        strange = [name for name in wanted if _same(name) not in names]
        if strange and names:
            report.failed(
                "hosts-select.unknown-host",
                str(path),
                option=option,
                names=fold(strange),
                hosts=fold([host.name for host in hosts]),
            )
    kept, dropped = {_same(name) for name in include}, {_same(name) for name in exclude}
    chosen = [
        replace(host)
        for host in hosts
        if (not kept or _same(host.name) in kept) and _same(host.name) not in dropped
    ]
    if hosts and not chosen and not list(report.errors()):
        raise OperatorError(
            "hosts-select.none-left",
            str(path),
            hosts=fold([host.name for host in hosts]),
        )
    if chosen and chosen[0].spare:
        report.failed("hostfile.spare-head", f"{path}:{chosen[0].line}", host=chosen[0].name)
    if chosen and chosen[0].name != hosts[0].name:
        report.note("hosts-select.head-changed", str(path), head=chosen[0].name)
    return chosen
