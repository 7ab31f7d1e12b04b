"""Interrupts of the command line: heard in any sleep, once each, and not where they are ignored."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.saying import started, until_said

ROOT = Path(__file__).resolve().parents[2]

# The signal does not wake the main thread from its read: like one that comes just before that.
ASLEEP = """
import os, signal, sys, threading, time
from reprise.cli.interrupts import hear_interrupts
number = signal.Signals[sys.argv[1]]
hear_interrupts()
signal.siginterrupt(number, False)
nothing, _ = os.pipe()

def send():
    time.sleep(0.5)
    os.kill(os.getpid(), number)
    time.sleep(0.5)
    signal.siginterrupt(number, True)

threading.Thread(target=send, daemon=True).start()
try:
    os.read(nothing, 1)
except KeyboardInterrupt:
    print("heard", flush=True)
"""

# It comes where Python prints what is raised, and forgets it.
FORGOTTEN = """
import os, signal, time
from reprise.cli.interrupts import hear_interrupts
hear_interrupts()

class Ending:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)

nothing, _ = os.pipe()
try:
    Ending()
    os.read(nothing, 1)
except KeyboardInterrupt:
    print("heard", flush=True)
"""

# Interrupts are sent while it sleeps; after two it waits for one too many.
COUNTED = """
import time
from reprise.cli.interrupts import hear_interrupts
hear_interrupts()
heard, until = 0, time.monotonic() + 60
while True:
    try:
        print("heard", heard, flush=True)
        while time.monotonic() < until:
            time.sleep(0.05)
        break
    except KeyboardInterrupt:
        heard += 1
        if heard == 2:
            until = time.monotonic() + 1
"""

# It comes at the first import of the command line's own library.
EARLY = """
import signal, sys, os
number = signal.Signals[sys.argv[1]]
if sys.argv[2] == "ignored":
    signal.signal(number, signal.SIG_IGN)
class Early:
    def find_spec(self, name, *_):
        if name == "typer":
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Early())
from reprise.cli import main
sys.argv = ["reprise", "hosts", "/nowhere"]
main()
"""

NUMBERS = ["SIGINT", "SIGTERM", "SIGHUP"]


@pytest.mark.parametrize("number", NUMBERS)
def test_an_interrupt_that_does_not_wake_the_main_thread_is_heard(number: str) -> None:
    with started([sys.executable, "-c", ASLEEP, number], cwd=ROOT) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"heard\n"), err


def test_an_interrupt_at_the_end_of_an_object_is_not_forgotten() -> None:
    with started([sys.executable, "-c", FORGOTTEN], cwd=ROOT) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, b"heard\n", b"")


def test_each_interrupt_is_heard_once() -> None:
    with started([sys.executable, "-c", COUNTED], cwd=ROOT) as process:
        for count in (b"heard 0", b"heard 1"):
            until_said(process.stdout, count)
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    assert out == b"heard 2\n", err


@pytest.mark.parametrize("number", NUMBERS)
def test_an_interrupt_while_the_command_still_loads_is_quiet(number: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EARLY, number, "heard"], cwd=ROOT, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize("number", NUMBERS)
def test_what_is_ignored_stays_so(number: str) -> None:
    """`nohup` ignores the end of the terminal; a shell's background job the interrupt key."""
    done = subprocess.run(
        [sys.executable, "-c", EARLY, number, "ignored"], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 1 and b"/nowhere" in done.stdout, done.stderr
