"""One line of a hostfile as a host, or all of its errors."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reprise.cluster.hosts.names import unfold
from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.nearby import did_you_mean, nearest_words

__all__ = ["RULE", "Host", "host_of", "hosts_of"]

RULE = "hostfile"
_KEYS = ("slots", "user", "port", "ip", "spare")
# Keys of Open MPI and DeepSpeed that have no effect here: a note, not an error.
_FOREIGN = ("max_slots", "max-slots")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?\.?")
_SSH_PORT, _MOST_SLOTS = 22, 1024
# Up to this number, `alice@node:8` may be meant as slots.
_MOST_GPUS = 16
# node[01-16], alice@node[01-16]:8; an IPv6 address begins with its bracket.
_GROUPED = re.compile(r"^(?:[^\[\]@]+@)?[^\[\]@]+\[")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]{0,63}")


@dataclass(frozen=True, slots=True)
class Host:
    """One host. `name` is its name for SSH, `ip` its explicit address on the training network.

    A `spare` is checked with the others; Ray starts on it when it replaces another host.
    """

    name: str
    slots: int
    line: int
    user: str | None = None
    port: int | None = None
    ip: str | None = None
    spare: bool = False

    def to_json(self) -> dict[str, Any]:
        """The host as `--json` prints it."""
        keys = ("name", "slots", "user", "port", "ip", "spare", "line")
        return {key: getattr(self, key) for key in keys}


@dataclass(slots=True)
class _Line:
    """Collects the errors of one line; `shown` is the line in printable characters."""

    report: Report
    where: str
    shown: str
    wrong: bool = False

    def refuse(self, text: str, /, **values: object) -> None:
        """Report an error; `text` names a text of the registry, `line` is among its values."""
        self.wrong = True
        self.report.failed(text, self.where, line=self.shown, **values)


def hosts_of(content: str, number: int, default: int, report: Report, where: str) -> list[Host]:
    """One line as its hosts: node[01-16] slots=8 is sixteen. Empty when the line has errors.

    Every host of a group has the line's settings, so a group cannot have ip=.
    """
    first, blank, rest = content.partition(" ") if " " in content else content.partition("\t")
    if not _GROUPED.match(first):
        host = host_of(content, number, default, report, where)
        return [] if host is None else [host]
    shown = content if content.isprintable() else ascii(content)
    try:
        names = unfold([first])
    except OperatorError:
        report.failed("hostfile.bad-range", where, line=shown)
        return []
    if re.search(r"(?:^|\s)ip=", rest) and len(names) > 1:
        report.failed("hostfile.ip-of-group", where, line=shown, count=len(names))
        return []
    found = []
    for name in names:
        host = host_of(f"{name}{blank}{rest}", number, default, report, where)
        if host is None:
            # The others have the same error.
            return []
        found.append(host)
    return found


def host_of(content: str, number: int, default: int, report: Report, where: str) -> Host | None:
    """One line as a host; None when it has errors, which `report` receives."""
    line = _Line(report, where, content if content.isprintable() else ascii(content))
    words = re.split(r"[ \t]+", content)
    values = _pairs(words[1:], line)
    name, short_slots, user = _address(words[0], line)
    short_slots, short_port = _short(name, short_slots, user, line)
    if short_slots is not None and "slots" in values:
        line.refuse("hostfile.slots-twice")
    slots_text = values.get("slots", short_slots)
    slots = default if slots_text is None else _number(slots_text, "slots", 1, _MOST_SLOTS, line)
    if short_port is not None and "port" in values:
        line.refuse("hostfile.port-twice")
    port_text = values.get("port", short_port)
    port = None if port_text is None else _number(port_text, "port", 1, 65535, line)
    if user is not None and "user" in values:
        line.refuse("hostfile.user-twice")
    user = values.get("user", user)
    if user is not None and not _USER.fullmatch(user):
        line.refuse("hostfile.bad-user", user=repr(user))
    ip = _ip(values["ip"], line) if "ip" in values else None
    spare = values.get("spare", "no")
    if spare not in ("yes", "no"):
        line.refuse("hostfile.bad-spare", value=repr(spare))
    if line.wrong or name is None or slots is None:
        return None
    return Host(name, slots, number, user, port, ip, spare == "yes")


def _pairs(words: Sequence[str], line: _Line) -> dict[str, str]:
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            line.refuse("hostfile.not-key-value", word=repr(word))
        elif key in _FOREIGN:
            line.report.note("hostfile.ignored-key", line.where, key=key)
        elif key not in _KEYS:
            hint = did_you_mean(nearest_words(key, _KEYS, 1))
            known = ", ".join(_KEYS)
            line.refuse("hostfile.unknown-key", key=repr(key), hint=hint, known=known)
        elif key in values:
            line.refuse("hostfile.key-twice", key=key)
        elif not value:
            line.refuse("hostfile.key-empty", key=key)
        else:
            values[key] = value
    return values


def _address(word: str, line: _Line) -> tuple[str | None, str | None, str | None]:
    """Name, slots of the short form and user of a line's first word."""
    user, at, rest = word.rpartition("@")
    if rest.startswith("["):
        inner, closed, tail = rest[1:].partition("]")
        slots = tail.removeprefix(":") if tail else None
        if not closed or (tail and not tail.startswith(":")) or not _is_ipv6(inner):
            line.refuse("hostfile.bad-ipv6")
            return None, None, None
        return inner.lower(), slots, user if at else None
    if rest.count(":") > 1:
        shown = rest if rest.isprintable() else ascii(rest)
        line.refuse("hostfile.ipv6-brackets", address=shown)
        return None, None, None
    name, colon, slots_text = rest.partition(":")
    if not _NAME.fullmatch(name):
        line.refuse("hostfile.bad-host", name=repr(name))
        return None, None, None
    return name, slots_text if colon else None, user if at else None


def _short(
    name: str | None, number: str | None, user: str | None, line: _Line
) -> tuple[str | None, str | None]:
    """Slots and port of `name:NUMBER`: slots, but a port in `user@name:NUMBER`.

    A number that is likely to be meant as the other is refused.
    """
    if name is None or number is None or not number.isdecimal():
        return number, None
    value = int(number)
    if user is not None and value > _MOST_GPUS:
        return None, number
    if user is not None or value == _SSH_PORT or value > _MOST_SLOTS:
        line.refuse("hostfile.slots-or-port", number=value)
        return None, None
    return number, None


def _number(text: str, key: str, low: int, high: int, line: _Line) -> int | None:
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", text):
        if text:
            line.refuse("hostfile.not-integer", key=key, value=repr(text), low=low, high=high)
        else:
            line.refuse("hostfile.key-empty", key=key)
        return None
    value = int(text)
    if value < low or value > high:
        line.refuse("hostfile.out-of-range", key=key, value=value, low=low, high=high)
        return None
    return value


def _ip(text: str, line: _Line) -> str | None:
    try:
        address = ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        line.refuse("hostfile.bad-ip", ip=repr(text))
        return None
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        line.refuse("hostfile.ip-not-reachable", ip=address)
        return None
    return str(address)


def _is_ipv6(text: str) -> bool:
    try:
        return isinstance(ipaddress.ip_address(text), ipaddress.IPv6Address)
    except ValueError:
        return False
