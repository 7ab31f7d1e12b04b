"""What stands before the text of a line: process, rank, level, time, source file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reprise.triage.read.clock import STAMP, Moment, read_moment

__all__ = ["Line", "PrefixMemory", "parse_line"]

# "(WorkerDict pid=4102, ip=10.8.0.13) ", "(pid=31) ", "(EngineCore_DP0 pid=7120) "
_RAY = re.compile(
    r"\((?:(?P<name>[^()\s][^()]{0,80}?(?:\([^()]*\))?[^()]{0,20}?) )?pid=(?P<pid>\w+)"
    r"(?:, ip=(?P<ip>[\w.:\-\[\]]+))?[^()]*\) ?"
)
# "(raylet, ip=10.8.0.12) ", "(autoscaler +1m3s) "
_DAEMON = re.compile(
    r"\((?P<name>raylet|gcs_server|autoscaler|dashboard|log_monitor)\b"
    r"(?:,? ?ip=(?P<ip>[\w.:\-]+))?[^()]*\) ?"
)
_RANK = re.compile(r"\[(?:rank|default|Rank )(?P<rank>\d+)\]:? ?")
# "[2026-08-02 10:00:41 TP0 EP1] ", "[2026-08-02 12:00:10,206 E 393 393] ",
# "[E802 10:32:12.100 ProcessGroupNCCL.cpp:632] ", "[Sun Aug  2 12:00:10 2026] "
_BRACKET = re.compile(
    r"\[(?:(?P<letter>[DIWEFC])\d{3,4} |(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?"
    r"(?=[^\]]{0,40}\d\d:\d\d)(?P<inside>[^\]]{8,90})\] ?"
)
_BRACKET_LEVEL = re.compile(r"\d ([DIWEFC])(?: \d+)*$")
_BRACKET_TAGS = re.compile(r"(?: (?:DP|TP|PP|EP|CP|ATTN_?[A-Z]*)\d+)+$")
_BRACKET_WORD = re.compile(r"\[(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\][ :]?")
_UPTIME = re.compile(r"\[ *\d+\.\d{2,6}\] ?")
_LOCATION = re.compile(r"\[?[\w./<>-]+\.(?:py|cc|cpp|cu|h|go):\d+(?:\]| --|:)? ?")
_LEVEL = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|NOTICE)\b(?:[:|]| [:|-]+(?= ))? ?"
)
_LETTER = re.compile(r"(?P<letter>[IWEF])(?=\d{4} \d\d:\d\d:\d\d)")
_AFTER_STAMP = re.compile(r"(?: [-|] | ?\| ?|[:,;]\s?|\t| )?")
_PYTHON_NAME = re.compile(r"[a-z_][\w.]* (?:- |\| )")
_NUMBERS = re.compile(r"\d+ (?=[\w./-]+\.(?:py|cc|cpp):\d+|\d+ )")
_STREAM = re.compile(r"(?:stdout|stderr) [FP] ")
_SYSLOG = re.compile(r"(?P<host>[\w.-]+) (?:kernel|raylet|dockerd|slurmd)(?:\[\d+\])?: ")
# "n2:305:401 [0] misc/socket.cc:484 NCCL WARN ..."
_NCCL = re.compile(r"(?P<host>[\w.-]+):(?P<pid>\d+):\d+ (?:\[\d+\] )?(?=\S)")
# "  | [2025-03-10T15:07:20Z] ...": a build server quotes the log.
_RELAYED = re.compile(r"\s{0,4}\| (?=\[?\d{4}-\d\d-\d\d)")
_SRUN = re.compile(r"\d{1,4}: (?=\S| )")
_BODY_RANK = re.compile(r"\[Rank (\d+)\]|\b[Rr]ank[ :=]{1,2}(\d+)\b")
_PID_IP = re.compile(r"\(pid=(\d+), ip=([\w.:\-]+)")
_LEVELS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL", "C": "CRITICAL"}
_ADDRESS = re.compile(r"[\[\]]")
_MOST_TOKENS = 10
_MEMORY = 6


@dataclass(slots=True)
class Line:
    """`body` is the text behind every prefix; its own indentation is kept.

    `process` is the chain of process prefixes as printed, without numbers of time.
    """

    body: str
    process: str = ""
    pid: str = ""
    ip: str = ""
    host: str = ""
    rank: int | None = None
    level: str = ""
    moment: Moment | None = None
    stamped: bool = False

    def copy(self) -> Line:
        """The same parts once more."""
        return Line(
            self.body,
            self.process,
            self.pid,
            self.ip,
            self.host,
            self.rank,
            self.level,
            self.moment,
            self.stamped,
        )


class PrefixMemory:
    """Parses lines; the prefixes of the last ones are not read again letter by letter."""

    def __init__(self) -> None:
        self._known: list[tuple[str, Line, list[str]]] = []

    def parse(self, text: str) -> Line:
        """Split a line, without its end and colours, into its prefixes and its body."""
        for index, (prefix, known, names) in enumerate(self._known):
            if text.startswith(prefix):
                if index:
                    self._known.insert(0, self._known.pop(index))
                line = known.copy()
                return _finish(text, len(prefix), line, list(names))
        line = Line("")
        names = []
        at = _prefixes(text, 0, line, names)
        if at:
            self._known.insert(0, (text[:at], line.copy(), list(names)))
            del self._known[_MEMORY:]
        return _finish(text, at, line, names)


def parse_line(text: str) -> Line:
    """Split a line, without its end and colours, into its prefixes and its body."""
    line = Line("")
    return _finish(text, 0, line, [])


def _prefixes(text: str, at: int, line: Line, names: list[str]) -> int:
    """Read prefixes from `at` on; where the body begins."""
    if not at and (match := _RELAYED.match(text)):
        at = match.end()
    for _ in range(_MOST_TOKENS):
        step = _token(text, at, line, names)
        if step <= at:
            break
        at = step
    return at


def _finish(text: str, at: int, line: Line, names: list[str]) -> Line:
    at = _prefixes(text, at, line, names)
    line.body = text[at:]
    line.process = " ".join(names)
    if line.rank is None and line.body.startswith(("[Rank", "[rank", "Rank", "rank")):
        found = _BODY_RANK.match(line.body)
        line.rank = int(found.group(1) or found.group(2)) if found else None
    return line


def _token(text: str, at: int, line: Line, names: list[str]) -> int:
    """Read one prefix at `at` into `line`; where the next may begin, `at` when there is none."""
    first = text[at : at + 1]
    if first == "(":
        return _parenthesis(text, at, line, names)
    if first == "[":
        return _brackets(text, at, line, names)
    if first.isdigit():
        return _digits(text, at, line, at == 0)
    if not first or first.isspace():
        return at
    return _word(text, at, line)


def _parenthesis(text: str, at: int, line: Line, names: list[str]) -> int:
    match = _RAY.match(text, at) or _DAEMON.match(text, at)
    if match is None:
        return at
    part = match.groupdict()
    if pid := part.get("pid"):
        line.pid = pid
    if part["ip"]:
        line.ip = _ADDRESS.sub("", part["ip"])
    name = part["name"] or "process"
    names.append(f"({name} pid={pid})" if pid else f"({name})")
    return match.end()


def _brackets(text: str, at: int, line: Line, names: list[str]) -> int:
    if match := _RANK.match(text, at):
        line.rank = int(match.group("rank"))
        names.append(f"[rank{line.rank}]")
        return match.end()
    if match := _BRACKET_WORD.match(text, at):
        line.level = line.level or match.group("level")
        return match.end()
    if match := _UPTIME.match(text, at):
        line.stamped = True
        return match.end()
    if match := _BRACKET.match(text, at):
        stamp = STAMP.search(match.group(0).encode(errors="replace"))
        if stamp is not None:
            _take_moment(line, stamp)
            inside = match.group("inside")
            level = match.group("letter") or _first(_BRACKET_LEVEL, inside)
            line.level = line.level or _LEVELS.get(level, "")
            if tags := _BRACKET_TAGS.search(inside):
                names.append(tags.group(0).strip())
            end = match.end()
            location = _LOCATION.match(text, end)
            return location.end() if location else end
    location = _LOCATION.match(text, at)
    return location.end() if location and (line.stamped or line.level) else at


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match.group(1) if match else ""


def _digits(text: str, at: int, line: Line, at_start: bool) -> int:
    stamp = STAMP.match(text[at : at + 40].encode("ascii", errors="replace"))
    if stamp is not None:
        _take_moment(line, stamp)
        end = at + stamp.end()
        after = _AFTER_STAMP.match(text, end)
        return after.end() if after else end
    if line.stamped and (match := _NUMBERS.match(text, at)):
        return match.end()
    if at_start and (match := _SRUN.match(text, at)):
        return match.end()
    return at


def _word(text: str, at: int, line: Line) -> int:
    stamp = STAMP.match(text[at : at + 40].encode("ascii", errors="replace"))
    if stamp is not None:
        if (match := _LETTER.match(text, at)) is not None:
            line.level = line.level or _LEVELS[match.group("letter")]
        _take_moment(line, stamp)
        end = at + stamp.end()
        return end + 1 if text[end : end + 1] == " " else end
    if match := _LEVEL.match(text, at):
        # "ERROR" alone, at the end of a line, is a word.
        if match.end() < len(text) or match.group(0).endswith((":", " ")):
            line.level = line.level or match.group("level")
            return match.end()
        return at
    return _source(text, at, line)


def _source(text: str, at: int, line: Line) -> int:
    """Which stream, program, source file or host a line names."""
    patterns: tuple[re.Pattern[str], ...] = (_LOCATION,) if line.level else ()
    if line.stamped:
        patterns = (_STREAM, _SYSLOG, _PYTHON_NAME, _LOCATION)
    for pattern in patterns:
        if match := pattern.match(text, at):
            line.host = match.groupdict().get("host") or line.host
            return match.end()
    if match := _NCCL.match(text, at):
        line.host, line.pid = match.group("host"), line.pid or match.group("pid")
        location = _LOCATION.match(text, match.end())
        return location.end() if location else match.end()
    return at


def _take_moment(line: Line, stamp: re.Match[bytes]) -> None:
    line.stamped = True
    # The outermost stamp is kept: one clock wrote it for every line of the file.
    line.moment = line.moment or read_moment(stamp)
