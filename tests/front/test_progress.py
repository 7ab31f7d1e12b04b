"""Progress: plain lines on standard error, or bars on a terminal; standard output stays free."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys

import pytest

from reprise.core.progress import Display, task


def test_plain_lines_carry_the_time_and_leave_stdout_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Display(plain=True, interval=0) as display:
        shown = display.task("fetch a", total=4, unit="MB")
        shown.advance()
        shown.update(3, "of part 2")
        shown.end("verified")
        shown.end("twice")
    said = capsys.readouterr()
    assert said.out == ""
    lines = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in said.err.splitlines()]
    assert lines == [
        "fetch a",
        "fetch a: 1/4 MB",
        "fetch a: 3/4 MB of part 2",
        "fetch a: verified",
    ]


def test_lines_are_held_back_for_the_interval(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(plain=True, interval=3600) as display:
        shown = display.task("count", total=1000)
        for _ in range(1000):
            shown.advance()
        shown.end()
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_task_that_fails_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), task("work"):
        raise KeyError("x")
    assert capsys.readouterr().err.splitlines()[-1].endswith("work: not finished")


def test_markup_in_a_name_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(plain=True) as display:
        display.line("[red]a[/red] [/] 100%")
    assert capsys.readouterr().err.endswith("[red]a[/red] [/] 100%\n")


CODE = """
from reprise.core.progress import Display
with Display() as display:
    shown = display.task("fetch [/] a", total=2)
    shown.advance(detail="half [/]")
    shown.end("verified")
"""


def test_a_terminal_gets_a_bar() -> None:
    parent, child = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    environment.pop("CI", None)
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        stdout=subprocess.PIPE,
        stderr=child,
        env=environment,
        check=False,
    )
    os.close(child)
    # A terminal gives what it has, in parts; it ends with an error once nobody writes any more.
    parts = []
    with contextlib.suppress(OSError):
        while part := os.read(parent, 65536):
            parts.append(part)
    said = b"".join(parts).decode()
    os.close(parent)
    assert (done.returncode, done.stdout) == (0, b"")
    # A terminal without UTF-8 gets the bar in ASCII.
    assert "50%" in said or "━" in said or "---" in said
    assert "fetch [/] a: verified" in said


VANISHES = """
import os, sys
from reprise.core.progress import Display
with Display() as display:
    shown = display.task("train", total=3)
    shown.advance()
    sys.stdin.readline()
    for _ in range(2):
        shown.advance(detail="x" * 4000)
        display.line("y" * 4000)
    shown.end("succeeded")
print("went on")
"""


@pytest.mark.parametrize("kind", ["terminal", "pipe"])
def test_a_terminal_that_vanishes_ends_no_work(kind: str) -> None:
    parent, child = pty.openpty() if kind == "terminal" else os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", VANISHES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=child,
        env=os.environ | {"TERM": "xterm"},
        text=True,
    )
    os.close(child)
    os.read(parent, 1)
    os.close(parent)
    said, _ = process.communicate("\n", timeout=60)
    assert (process.returncode, said) == (0, "went on\n")
