"""The hostfile: which hosts, how many accelerators each, the first one is the head.

    gpu-a slots=8                     the form of DeepSpeed and Open MPI
    gpu-b:4                           the short form
    gpu-c slots=8 ip=10.8.0.13        its address on the training network
    alice@gpu-d port=2222             or user=alice; else ssh_config decides
    [fd00::12]:8                      IPv6 in brackets

Everything that is wrong is told at once, with its line, before anything is contacted.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reprise.cluster.names import fold, unfold
from reprise.errors import OperatorError
from reprise.findings import Report

__all__ = ["DEFAULT_SLOTS", "Host", "Hostfile", "read_hostfile"]

DEFAULT_SLOTS = 8
"""Accelerators of a host that states none: what the machines of all profiles here have."""

_KEYS = ("slots", "user", "port", "ip")
# Open MPI's and DeepSpeed's own keys that mean nothing here: noted, not refused.
_FOREIGN = ("max_slots", "max-slots")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?\.?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]{0,63}")
_RULE = "hostfile"
_FIX = "correct the line, then repeat the command"


@dataclass(frozen=True, slots=True)
class Host:
    """One host. `name` is what SSH is given, `ip` its stated address on the training network."""

    name: str
    slots: int
    line: int
    user: str | None = None
    port: int | None = None
    ip: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The host as `--json` prints it."""
        keys = ("name", "slots", "user", "port", "ip", "line")
        return {key: getattr(self, key) for key in keys}


@dataclass(frozen=True, slots=True)
class Hostfile:
    """A file that was read without an error. `hosts` is in the file's order, the head first."""

    path: Path
    hosts: tuple[Host, ...]

    @property
    def head(self) -> Host:
        """The first host."""
        return self.hosts[0]

    @property
    def slots(self) -> int:
        """Accelerators of all hosts together."""
        return sum(host.slots for host in self.hosts)


def read_hostfile(
    path: Path,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    default_slots: int = DEFAULT_SLOTS,
) -> tuple[Report, Hostfile | None]:
    """Read `path`; the second value is None when the report has an error.

    `include` and `exclude` hold names as `names.unfold` reads them. Nothing is contacted.
    """
    report = Report("hosts")
    text = _read(path, report)
    if text is None:
        return report, None
    hosts = _parse(text, path, report, default_slots)
    _duplicates(hosts, path, report)
    _loopback(hosts, path, report)
    if not hosts and not list(report.errors()):
        report.failed(_RULE, str(path), "names no host", "write a line like: gpu-a slots=8")
    chosen = _choose(hosts, unfold(include), unfold(exclude), path, report)
    if list(report.errors()):
        return report, None
    report.passed(_RULE)
    report.data["hosts"] = [host.to_json() for host in chosen]
    return report, Hostfile(path.absolute(), tuple(chosen))


def _read(path: Path, report: Report) -> str | None:
    """The file's text without its byte order mark; line ends are left to `_parse`."""
    full = path.absolute()
    if not full.is_file():
        what = "is no file" if full.exists() else "does not exist"
        near = _similar(full)
        tail = f"; similar: {', '.join(near)}" if near else ""
        report.failed(
            _RULE,
            str(full),
            f"the hostfile {what}{tail}",
            "name an existing hostfile; without any, the command looks at this machine alone",
        )
        return None
    raw = full.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        guess = ", it looks like UTF-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        report.failed(_RULE, f"{path}:{line}", f"expected UTF-8 text{guess}", "save it as UTF-8")
        return None
    if "\r\n" in text:
        report.note(_RULE, str(path), "line ends of Windows (CRLF) were read as plain ones")
    return text


def _similar(path: Path) -> list[str]:
    """Files of the same folder, or of the folder with blanks removed, with a name like it."""
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
        reasons: list[str] = []
        host = _host(content, number, default_slots, reasons, report, f"{path}:{number}")
        for reason in reasons:
            shown = content if content.isprintable() else ascii(content)
            report.failed(_RULE, f"{path}:{number}", f"{shown}: {reason}", _FIX)
        if not reasons and host is not None:
            hosts.append(host)
    return hosts


def _host(
    content: str, line: int, default: int, reasons: list[str], report: Report, where: str
) -> Host | None:
    """One line as a host; what is wrong with it is appended to `reasons`."""
    words = re.split(r"[ \t]+", content)
    values = _pairs(words[1:], reasons, report, where)
    name, short_slots, user = _address(words[0], reasons)
    if short_slots is not None and "slots" in values:
        reasons.append("slots are given twice, after the colon and as slots=")
    slots_text = values.get("slots", short_slots)
    slots = default if slots_text is None else _number(slots_text, "slots", 1, 1024, reasons)
    port = _number(values["port"], "port", 1, 65535, reasons) if "port" in values else None
    if user is not None and "user" in values:
        reasons.append("the user is given twice, before the @ and as user=")
    user = values.get("user", user)
    if user is not None and not _USER.fullmatch(user):
        reasons.append(f"{user!r} is no user name")
    ip = _ip(values["ip"], reasons) if "ip" in values else None
    if reasons or name is None or slots is None:
        return None
    return Host(name, slots, line, user, port, ip)


def _pairs(words: Sequence[str], reasons: list[str], report: Report, where: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            reasons.append(f"expected key=value, found {word!r}")
        elif key in _FOREIGN:
            report.note(_RULE, where, f"{key} means nothing here and is ignored")
        elif key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f", did you mean {near[0]}" if near else ""
            reasons.append(f"unknown key {key!r}{hint} (known: {', '.join(_KEYS)})")
        elif key in values:
            reasons.append(f"{key} is given twice")
        elif not value:
            reasons.append(f"{key} is empty")
        else:
            values[key] = value
    return values


def _address(word: str, reasons: list[str]) -> tuple[str | None, str | None, str | None]:
    """Name, slots of the short form and user of a line's first word."""
    user, at, rest = word.rpartition("@")
    if rest.startswith("["):
        inner, closed, tail = rest[1:].partition("]")
        slots = tail.removeprefix(":") if tail else None
        if not closed or (tail and not tail.startswith(":")) or not _is_ipv6(inner):
            reasons.append("expected an IPv6 address in brackets, like [fd00::12] or [fd00::12]:8")
            return None, None, None
        return inner.lower(), slots, user if at else None
    if rest.count(":") > 1:
        reasons.append(f"an IPv6 address stands in brackets: [{rest}]")
        return None, None, None
    name, colon, slots_text = rest.partition(":")
    if not _NAME.fullmatch(name):
        reasons.append(f"{name!r} is no host name (letters, digits, dots, dashes)")
        return None, None, None
    return name, slots_text if colon else None, user if at else None


def _number(text: str, key: str, low: int, high: int, reasons: list[str]) -> int | None:
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", text):
        reasons.append(f"{key}: {text!r} is not an integer" if text else f"{key} is empty")
        return None
    value = int(text)
    if value < low or value > high:
        said = "is zero" if value == 0 else "is negative" if value < 0 else "is too large"
        reasons.append(f"{key}={value} {said} (expected {low} to {high})")
        return None
    return value


def _ip(text: str, reasons: list[str]) -> str | None:
    try:
        address = ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        reasons.append(f"ip: {text!r} is no IP address")
        return None
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        reasons.append(f"ip: {address} cannot be reached from another host")
        return None
    return str(address)


def _is_ipv6(text: str) -> bool:
    try:
        return isinstance(ipaddress.ip_address(text), ipaddress.IPv6Address)
    except ValueError:
        return False


def _duplicates(hosts: Sequence[Host], path: Path, report: Report) -> None:
    seen: dict[tuple[str, object], int] = {}
    for host in hosts:
        keys: list[tuple[str, object]] = [("host", (host.name.lower(), host.port))]
        keys += [("ip", host.ip)] if host.ip else []
        for kind, value in keys:
            if (kind, value) in seen:
                shown = host.name if kind == "host" else f"ip={host.ip}"
                report.failed(
                    _RULE,
                    f"{path}:{host.line}",
                    f"{shown} stands already in line {seen[kind, value]}",
                    "keep one of the two lines",
                )
            seen.setdefault((kind, value), host.line)


def _loopback(hosts: Sequence[Host], path: Path, report: Report) -> None:
    """A loopback name among several hosts: the others would take it for themselves."""
    for host in hosts if len(hosts) > 1 else ():
        if host.ip is None and (host.name == "localhost" or host.name.startswith("127.")):
            report.failed(
                _RULE,
                f"{path}:{host.line}",
                f"{host.name} means every host itself, not this one",
                "write the name or address by which the other hosts reach it, or add ip=",
            )


def _choose(
    hosts: Sequence[Host], include: list[str], exclude: list[str], path: Path, report: Report
) -> list[Host]:
    names = {host.name for host in hosts}
    for option, wanted in (("--include", include), ("--exclude", exclude)):
        strange = [name for name in wanted if name not in names]
        if strange and names:
            report.failed(
                "hosts-select",
                str(path),
                f"{option} names {fold(strange)}, which the hostfile does not",
                f"name hosts of the file: {fold([host.name for host in hosts])}",
            )
    chosen = [
        replace(host)
        for host in hosts
        if (not include or host.name in include) and host.name not in exclude
    ]
    if hosts and not chosen and not list(report.errors()):
        raise OperatorError(
            "hosts-select",
            str(path),
            "--include and --exclude leave no host",
            f"name hosts of the file: {fold([host.name for host in hosts])}",
        )
    if chosen and chosen[0].name != hosts[0].name:
        report.note("hosts-select", str(path), f"the head is {chosen[0].name}, the first one left")
    return chosen
