"""Commands of a session of their own: what they say, and their end with the command that asked."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from reprise.core.children import run_in_session
from tests.saying import started, until_said

# As `scripts/venv.sh` works: a job in the background ignores the interrupt key.
SCRIPT = """
cd "$1"
trap 'echo tidied >tidied; exit 3' TERM
sh -c 'trap "" INT; sleep 300' & one=$!
sleep 300 & two=$!
echo $one $two >pids.part
mv pids.part pids
echo up
wait
"""
RUN = """
import sys
from reprise.core.children import run_in_session
from reprise.cli.interrupts import hear_interrupts
hear_interrupts()
run_in_session(["sh", "-c", sys.argv[1], "sh", sys.argv[2]])
"""


def test_what_it_says_and_how_it_ends() -> None:
    command = ["sh", "-c", "cat; echo out; echo err >&2; exit 4"]
    done = run_in_session(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert (done.returncode, done.stdout, done.stderr) == (4, "out\n", "err\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_with_all_that_it_started(tmp_path: Path, number: signal.Signals) -> None:
    with started([sys.executable, "-c", RUN, SCRIPT, tmp_path]) as process:
        until_said(process.stdout, b"up")
        jobs = [
            psutil.Process(int(pid))
            for pid in (tmp_path / "pids").read_text(encoding="utf-8").split()
        ]
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in err
    assert (tmp_path / "tidied").exists()
    _, left = psutil.wait_procs(jobs, timeout=60)
    assert [job for job in left if job.status() != psutil.STATUS_ZOMBIE] == []
