"""Time stamps of logs as seconds, whatever their format, and the offsets of hosts' clocks."""

from __future__ import annotations

import calendar
import re
from collections import Counter
from collections.abc import Iterable

__all__ = ["STAMP", "Moment", "last_moment", "most_common_year", "read_moment", "with_year"]

Moment = tuple[float, bool]
"""Seconds since the epoch, and whether the year is missing (then the year 2000 is used)."""

# 2026-08-02 10:02:11,733 | 2026-08-02T10:02:11.733Z | 08-02 10:02:11 | E0802 10:02:11.1 |
# Sun Aug  2 10:02:11 2026 | Aug  2 10:02:11
STAMP = re.compile(
    rb"(?P<y>\d{4})[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[ T](?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)"
    rb"(?P<f>[.,]\d+)?(?P<z>Z|[+-]\d\d:?\d\d)?"
    rb"|\b(?P<mo2>\d\d)-(?P<d2>\d\d) (?P<h2>\d\d):(?P<mi2>\d\d):(?P<s2>\d\d)(?P<f2>[.,]\d+)?"
    rb"|\b[DIWEF](?P<mo3>\d{1,2})(?P<d3>\d\d) (?P<h3>\d\d):(?P<mi3>\d\d):(?P<s3>\d\d)(?P<f3>\.\d+)?"
    rb"|\b(?P<mo4>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(?P<d4>\d{1,2}) "
    rb"(?P<h4>\d\d):(?P<mi4>\d\d):(?P<s4>\d\d)(?: (?P<y4>\d{4})\b)?"
)
_CLOCK = re.compile(rb"\d\d:\d\d:\d\d")
_MONTHS = {name.encode(): number for number, name in enumerate(calendar.month_abbr) if name}
_NO_YEAR = 2000


def read_moment(match: re.Match[bytes]) -> Moment | None:
    """The moment that a match of STAMP means; None for an impossible date (month 13).

    A stamp without a zone is read as UTC: what counts is the order, and the hosts of a cluster
    have one zone.
    """
    part = match.groupdict()
    for suffix in ("", "2", "3", "4"):
        if part[f"mo{suffix}"] is None:
            continue
        name = part[f"mo{suffix}"]
        month = _MONTHS.get(name) or int(name)
        day = int(part[f"d{suffix}"])
        year = part.get(f"y{suffix}")
        clock = [int(part[f"{unit}{suffix}"]) for unit in ("h", "mi", "s")]
        if not (1 <= month <= 12 and 1 <= day <= 31 and clock[0] < 24 and max(clock) < 61):
            return None
        whole = calendar.timegm((int(year) if year else _NO_YEAR, month, day, *clock, 0, 0, 0))
        fraction = part.get(f"f{suffix}")
        seconds = whole + (float(fraction.replace(b",", b".")) if fraction else 0.0)
        return seconds - _zone(part.get("z") if not suffix else None), year is None
    return None


def _zone(text: bytes | None) -> float:
    """Seconds that a zone is ahead of UTC."""
    if text is None or text == b"Z":
        return 0.0
    sign = -1 if text.startswith(b"-") else 1
    digits = text[1:].replace(b":", b"")
    return sign * (int(digits[:2]) * 3600 + int(digits[2:4]) * 60.0)


def last_moment(data: bytes) -> Moment | None:
    """The last time stamp in `data`, or None."""
    places = [match.start() for match in _CLOCK.finditer(data)]
    for place in reversed(places[-8:]):
        for match in STAMP.finditer(data, max(0, place - 16), place + 40):
            if match.start() <= place < match.end() and (moment := read_moment(match)):
                return moment
    return None


def with_year(seconds: float, year: int) -> float:
    """A moment of the year 2000 moved to the same date of `year`."""
    moved = calendar.timegm((year, 1, 1, 0, 0, 0, 0, 0, 0))
    base = calendar.timegm((_NO_YEAR, 1, 1, 0, 0, 0, 0, 0, 0))
    # 2000 is a leap year; from March on, other years lack its 29 February.
    march = calendar.timegm((_NO_YEAR, 3, 1, 0, 0, 0, 0, 0, 0))
    lost = 86400.0 if seconds >= march and not calendar.isleap(year) else 0.0
    return seconds - base + moved - lost


def most_common_year(moments: Iterable[float]) -> int:
    """The year of most of the given moments; 2000 when there are none."""
    import time

    counts = Counter(time.gmtime(moment).tm_year for moment in moments)
    return counts.most_common(1)[0][0] if counts else _NO_YEAR
