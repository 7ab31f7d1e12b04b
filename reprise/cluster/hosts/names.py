"""Names of hosts: folded for reading, unfolded for `--include` and `--exclude`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from reprise.core.errors import OperatorError

__all__ = ["fold", "unfold"]

_NUMBERED = re.compile(r"^(?P<head>.*?)(?P<number>\d+)(?P<tail>[^\d]*)$")
_GROUP = re.compile(r"^(?P<head>[^\[\],]*)\[(?P<ranges>[\d,-]+)\](?P<tail>[^\[\],]*(?:\[.*)?)$")
_MOST = 100_000


def fold(names: Sequence[str]) -> str:
    """The names in the short form of cluster tools: node01, node02, node04 -> node[01-02,04].

    Addresses are listed in full: a folded address is hard to read. Order is by name.
    """
    matches = {name: _number_of(name) for name in dict.fromkeys(names)}
    padded = {
        (match["head"], match["tail"], len(match["number"]))
        for match in matches.values()
        if match is not None and match["number"].startswith("0")
    }
    groups: dict[tuple[str, str, int], list[int]] = {}
    plain: list[str] = []
    for name, match in matches.items():
        if match is None:
            plain.append(name)
            continue
        # node16 belongs to node[01-03] but n10 to n9: a width counts where a zero shows it.
        width = len(match["number"])
        key = (match["head"], match["tail"], width)
        groups.setdefault(key if key in padded else (*key[:2], 0), []).append(int(match["number"]))
    folded = [_ranges(*key, sorted(numbers)) for key, numbers in groups.items()]
    return ",".join([*folded, *plain])


def _number_of(name: str) -> re.Match[str] | None:
    if ":" in name or re.fullmatch(r"[\d.]+", name):
        return None
    return _NUMBERED.match(name)


def _ranges(head: str, tail: str, width: int, numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [
        f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
        for first, last in runs
    ]
    if len(numbers) == 1:
        return f"{head}{texts[0]}{tail}"
    return f"{head}[{','.join(texts)}]{tail}"


def unfold(texts: Iterable[str]) -> list[str]:
    """Names in comma-separated lists, with node[01-03,07] written out; each name once.

    A name may have several groups: rack[1-2]node[01-16].

    Raises OperatorError for a range that is backwards, too long or not closed.
    """
    names: list[str] = []
    for text in texts:
        for part in _split(text):
            match = _GROUP.match(part)
            if match is None:
                if "[" in part and not part.startswith("["):
                    raise OperatorError("hosts-select.bad-form", part)
                names.append(part)
                continue
            found = [f"{match['head']}{n}{match['tail']}" for n in _numbers(match["ranges"], part)]
            if "[" in match["tail"]:
                found = unfold(found)
            names.extend(found)
            if len(names) > _MOST:
                raise OperatorError("hosts-select.backwards", part, range=part, most=_MOST)
    return list(dict.fromkeys(names))


def _split(text: str) -> list[str]:
    """Split at commas that are not inside brackets."""
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip()]


def _numbers(ranges: str, part: str) -> list[str]:
    found: list[str] = []
    for piece in ranges.split(","):
        first, dash, last = piece.partition("-")
        if not first or (dash and not last) or not (first + last).isdigit():
            raise OperatorError("hosts-select.bad-range", part, range=repr(piece))
        width = len(first) if first.startswith("0") else 0
        low, high = int(first), int(last or first)
        if high < low or high - low >= _MOST:
            raise OperatorError("hosts-select.backwards", part, range=piece, most=_MOST)
        found.extend(f"{number:0{width}d}" for number in range(low, high + 1))
    return found
