"""One line of a hostfile as a host, or everything that is wrong with it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reprise.core.findings import Report
from reprise.core.nearby import did_you_mean, nearest_words

__all__ = ["RULE", "Host", "host_of"]

RULE = "hostfile"
_KEYS = ("slots", "user", "port", "ip")
# Open MPI's and DeepSpeed's own keys that mean nothing here: noted, not refused.
_FOREIGN = ("max_slots", "max-slots")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?\.?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]{0,63}")


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


def host_of(
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
            report.note("hostfile.means-nothing-here", where, setting=key)
        elif key not in _KEYS:
            hint = did_you_mean(nearest_words(key, _KEYS, 1))
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
