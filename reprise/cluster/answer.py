"""The answer of one host: reached or not, the script's own exit code, and its output."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Answer", "AnswerKind", "classify"]


class AnswerKind(StrEnum):
    """The outcome on one host. Only OK and FAILED have an exit code of the script."""

    OK = "ok"
    FAILED = "failed"
    NOT_FOUND = "command-not-found"
    KEY_UNKNOWN = "host-key-unknown"
    KEY_CHANGED = "host-key-changed"
    DENIED = "permission-denied"
    UNREACHABLE = "unreachable"
    HUNG = "no-answer"
    CUT = "cut-off"


# Messages of the OpenSSH client (LC_ALL=C); OpenSSH 9.2 and 10 were read.
_SAID = (
    (re.compile("IDENTIFICATION HAS CHANGED"), AnswerKind.KEY_CHANGED),
    (re.compile("REVOKED HOST KEY"), AnswerKind.KEY_CHANGED),
    (
        re.compile(r"[Nn]o \S+ host key is known|Host key verification failed"),
        AnswerKind.KEY_UNKNOWN,
    ),
    (re.compile("Permission denied|Too many authentication failures"), AnswerKind.DENIED),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of `host`.

    `code` is the script's exit code (None: it did not end), `output` its standard output without
    that of the login shell, `said` the last lines of standard error. `began` and
    `ended` are seconds since the epoch on this machine's clock around the whole call.
    """

    host: str
    outcome: AnswerKind
    code: int | None
    output: str
    said: str
    began: float
    ended: float

    @property
    def ok(self) -> bool:
        """Whether the script ran and ended with 0."""
        return self.outcome is AnswerKind.OK

    @property
    def reached(self) -> bool:
        """Whether the script ran to its end, whatever it returned."""
        return self.code is not None


def classify(
    raw: str, said: str, status: int | None, nonce: str, connected: bool
) -> tuple[AnswerKind, int | None, str]:
    """Kind of answer, the script's exit code and its output, from the output of the SSH client.

    `status` is the client's exit code, None when it was ended at the time limit. The markers
    separate the script's output from a banner, and a script that returns 255 from a client that
    could not connect.
    """
    _, begun, rest = raw.partition(f"\n@@begin {nonce}\n")
    if not begun and raw.startswith(f"@@begin {nonce}\n"):
        begun, rest = nonce, raw.partition("\n")[2]
    output, ended, tail = rest.rpartition(f"\n@@end {nonce} ")
    if begun and ended:
        code = int(tail.split("\n", 1)[0] or 1)
        outcome = {0: AnswerKind.OK, 127: AnswerKind.NOT_FOUND}.get(code, AnswerKind.FAILED)
        return outcome, code, output
    if status is None:
        return (AnswerKind.HUNG if begun or connected else AnswerKind.UNREACHABLE), None, rest
    return _not_run(status, said, bool(begun)), None, rest


def _not_run(status: int, said: str, begun: bool) -> AnswerKind:
    """Why the script did not finish, when the client ended with `status`."""
    if begun or status not in (127, 255):
        return AnswerKind.CUT
    if status == 127:
        return AnswerKind.NOT_FOUND
    for pattern, outcome in _SAID:
        if pattern.search(said):
            return outcome
    return AnswerKind.UNREACHABLE
