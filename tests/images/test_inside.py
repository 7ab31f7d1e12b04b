"""`reprise image run`, and questions to an engine: a stand-in that keeps to its command line."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from reprise.core.errors import CannotTell
from reprise.images import engine
from tests.saying import started, until_said

ROOT = Path(__file__).resolve().parents[2]
# Its containers are processes; `kill` reaches them as the real one's does, past the client.
ENGINE = """#!/bin/sh
case $1 in
run) setsid sh -c 'trap "echo ended; exit 130" TERM; echo $$ >"$0.pid"; echo up
         while :; do sleep 0.1; done' "$0" & wait $!; exit $? ;;
kill) kill -"$3" "$(cat "$0.pid")" ;;
info) echo '[]' ;;
ps) ;;
esac
"""
RUN = """
import sys
from dataclasses import replace
from pathlib import Path
from reprise.cli.interrupts import hear_interrupts
from reprise.flows.images import run_inside
from reprise.core.project import find_project
hear_interrupts()
sys.exit(run_inside(find_project(), "image", ["reproduce"]))
"""


def stand_in(folder: Path, text: str) -> Path:
    path = folder / "docker"
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_polite_end_reaches_the_container(tmp_path: Path) -> None:
    path = stand_in(tmp_path, ENGINE)
    environment = os.environ | {"REPRISE_ENGINE": str(path), "RUNS_DIR": str(tmp_path / "runs")}
    try:
        with started([sys.executable, "-c", RUN], cwd=ROOT, env=environment, text=True) as process:
            until_said(process.stdout, "up")
            process.terminate()
            out, err = process.communicate(timeout=60)
    finally:
        with contextlib.suppress(OSError):
            os.killpg(int((tmp_path / "docker.pid").read_text(encoding="utf-8")), signal.SIGKILL)
    assert (process.returncode, out) == (130, "ended\n"), err


def test_an_engine_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stand_in(tmp_path, "#!/bin/sh\nexec sleep 300\n")
    monkeypatch.setattr(engine, "_SECONDS", 0.5)
    began = time.monotonic()
    for question in (
        lambda: engine.inspect_image("name", str(path)),
        lambda: engine.held_with_label(str(path), "a=b"),
    ):
        with pytest.raises(CannotTell, match="does not answer"):
            question()
    assert time.monotonic() - began < 100
