"""Python tracebacks, recognised by their shape, whatever their exceptions are called."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from reprise.triage.read.prefix import Line

__all__ = ["HEADER_BYTES", "Echo", "Ended", "Trace", "exception_of", "frame_text", "is_header"]

HEADER = "Traceback (most recent call last)"
HEADER_BYTES = HEADER.encode()
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<function>.+)$')
# ExceptionGroup draws "  | " and "  + ", Rich draws boxes.
_DRAWN = re.compile(r"^\s*[|+│╭╰❱]")
_GROUP = re.compile(r"^ *(?:[|+]-?)+ ?")
_RULER = re.compile(r"^-*(?: \d+ |\.\.\.)?-*$")
_WITH_PARTS = re.compile(r"^(?:Base)?ExceptionGroup: .*\(\d+ sub-exceptions?\)")
_EXCEPTION = re.compile(
    r"^(?P<name>[A-Za-z_]\w*(?:\.(?:[A-Za-z_]\w*|<locals>))*)"
    r"(?:(?P<cause>\([\w.]+\))?(?P<colon>:(?: (?P<message>.*))?))?$"
)
_CLASS = re.compile(r"^[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9_]*$")
_SUFFIX = re.compile(r"(?:Error|Exception|Exit|Interrupt|Group|Iteration)$")
_NO_EXCEPTION = {"Note", "Tip", "Warning", "Hint", "File", "Loading", "Epoch", "Step", "Process"}
# Ray raises a worker's exception again in its caller, with the worker's traceback behind it.
ECHO = re.compile(
    r"^(?:ray\.exceptions\.)?RayTaskError(?:\((?P<cause>\w+)\))?: "
    r".*?ray::(?P<call>[\w.]+(?:\(\))?)(?:.*?\(pid=(?P<pid>\d+), ip=(?P<ip>[\w.:\-\[\]]+))?"
)
_CHAIN = re.compile(r"above exception")
_MOST_OWN = 600
_MOST_OTHER = 3000
_JUNK = 6


@dataclass(frozen=True, slots=True)
class Ended:
    """An exception that ends a traceback. `direct` follows "the direct cause of the following"."""

    name: str
    message: str
    frames: tuple[str, ...]
    frames_lines: tuple[int, ...]
    chained: bool
    direct: bool
    headed: bool
    remote: Echo | None


@dataclass(frozen=True, slots=True)
class Echo:
    """`ray.exceptions.RayTaskError(Cause): ray::Actor.method() (pid=.., ip=..)`."""

    cause: str
    call: str
    pid: str
    ip: str


@dataclass(slots=True)
class Trace:
    """A traceback that is being read. `line` and `identity` are those of its first line."""

    line: int
    identity: Line
    headed: bool
    frames: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    stamped: bool | None = None
    own: int = 0
    other: int = 0
    junk: int = 0
    chained: bool = False
    direct: bool = False
    remote: Echo | None = None
    suppressed: bool = False
    announced: bool = False
    prefix: bytes | None = None
    parts: bool = False

    def feed(self, number: int, line: Line) -> Ended | Echo | bool:
        """Take the next line of the same process.

        An exception, an echo (more follows), or whether the traceback goes on.
        """
        self.own += 1
        body = line.body
        if _DRAWN.match(body) and "│" not in body[:8]:
            body = _GROUP.sub("", body)
            if _RULER.match(body):
                return self.own < _MOST_OWN
        if is_header(body):
            self.frames.clear()
            self.lines.clear()
            self.stamped, self.headed = None, True
            return self.own < _MOST_OWN
        if self.frame(number, body):
            if self.stamped is None:
                self.stamped = line.stamped
            return self.own < _MOST_OWN
        if not body.strip() or body[0] in " \t":
            return self.own < _MOST_OWN
        if _DRAWN.match(body):
            return self.own < _MOST_OWN
        return self._end(line, body)

    def frame(self, number: int, body: str) -> bool:
        """Take a line that may be a frame; whether it is one."""
        if not body.lstrip().startswith('File "') or '", line ' not in body:
            return False
        self.own += 1
        self.frames.append(body)
        self.lines.append(number)
        return True

    def _end(self, line: Line, body: str) -> Ended | Echo | bool:
        """What a line without indentation means."""
        if echo := ECHO.match(body):
            self.remote = Echo(
                echo["cause"] or "",
                echo["call"] or "",
                echo["pid"] or "",
                (echo["ip"] or "").strip("[]"),
            )
            self.frames.clear()
            self.lines.clear()
            self.stamped = None
            return self.remote
        if _WITH_PARTS.match(body):
            # The parts follow, the first of them the first cause.
            self.parts = True
            return self.own < _MOST_OWN
        named = exception_of(body, strict=(not self.frames or not self.headed) and not self.parts)
        same_style = self.stamped is None or line.stamped == self.stamped
        if named is None or not same_style:
            self.junk += 1
            return self.junk < _JUNK and self.headed and self.own < _MOST_OWN
        return Ended(
            named[0],
            named[1],
            tuple(self.frames[-40:]),
            tuple(self.lines[-200:]),
            self.chained,
            self.direct,
            self.headed,
            self.remote,
        )

    def wait(self) -> bool:
        """Another process's line; whether this traceback is still expected to go on."""
        self.other += 1
        return self.other < _MOST_OTHER


def frame_text(body: str) -> str:
    """A frame as file:line in function."""
    match = _FRAME.match(body)
    if match is None:
        return body.strip()
    return f"{match['file']}:{match['line']} in {match['function'].strip()}"


def is_header(body: str) -> bool:
    """Whether a line opens a traceback."""
    return HEADER in body and not body.rstrip().endswith("'")


def exception_of(body: str, strict: bool) -> tuple[str, str] | None:
    """The class and the message of a line that has the shape of an exception, or None.

    `strict` also asks that the name looks like that of an exception's class.
    """
    match = _EXCEPTION.match(body.rstrip())
    if match is None or not _is_class(match["name"], match["colon"] is not None, strict):
        return None
    return match["name"], (match["message"] or "").strip()


def _is_class(name: str, colon: bool, strict: bool) -> bool:
    """Whether a name may be an exception's. Only one of a module has a dot."""
    last = name.rsplit(".", 1)[-1]
    if last.isupper() or name in _NO_EXCEPTION:
        return False
    if "." in name:
        # zlib.error has a message; a name without one may be the rest of a line that was cut.
        return last[:1].isupper() or (colon and not strict)
    if not _CLASS.match(name):
        return False
    return _SUFFIX.search(name) is not None if strict else colon or not name[1:].isupper()
