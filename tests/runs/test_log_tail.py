"""The copy of a job's log against a stream that breaks off, goes silent or ends too early."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reprise.metrics import read_run
from reprise.runs.ray import log_tail
from reprise.runs.ray.log_tail import LogTail
from reprise.runs.state.folder import RunFolder
from reprise.runs.supervise.following import StepsOfLog
from reprise.runs.watch.feed import Feed

STEP = "(TaskRunner pid=7) step:%d - critic/rewards/mean:0.125 - timing_s/step:1.0\n"


@dataclass
class Stream:
    """Ray's client: each connection sends what there is of the log, then does as it is told."""

    log: str = ""
    state: str = "RUNNING"
    # What the next connections do: "end" well, "break", or "hang"; further ones end.
    manners: list[str] = field(default_factory=list)
    connections: int = 0

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        self.connections += 1
        manner = self.manners.pop(0) if self.manners else "end"
        if self.log:
            yield self.log
        if manner == "break":
            raise RuntimeError("the connection broke")
        if manner == "hang":
            await asyncio.sleep(300)

    def get_job_status(self, job: str) -> str:
        return self.state

    def get_job_logs(self, job: str) -> str:
        return self.log


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tail, "_AGAIN_SECONDS", 0.02)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.02)


@pytest.mark.parametrize("manner", ["end", "break", "hang"])
def test_a_stream_that_is_lost_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manner: str
) -> None:
    monkeypatch.setattr(log_tail, "_SILENT_SECONDS", 0.2)
    client = Stream("one\n", manners=[manner])
    heard: list[str] = []
    tail = LogTail(client, "job", tmp_path / "log", heard.append)
    until(lambda: heard == ["one"])
    client.log += "two\n"
    until(lambda: heard == ["one", "two"])
    tail.close(rest=False)
    assert (tmp_path / "log").read_text(encoding="utf-8") == "one\ntwo\n"


def test_a_job_that_has_ended_is_not_asked_again(tmp_path: Path) -> None:
    client = Stream("one\nlast", state="SUCCEEDED")
    heard: list[str] = []
    tail = LogTail(client, "job", tmp_path / "log", heard.append)
    until(lambda: heard == ["one", "last"])
    tail.close(rest=True)
    assert client.connections == 1
    assert heard == ["one", "last"]


def test_half_a_line_is_no_step(tmp_path: Path) -> None:
    """Who detaches in the middle of a line records no number that lacks digits."""
    metrics = tmp_path / "metrics" / "attempt-1.jsonl"
    metrics.parent.mkdir()
    whole = STEP % 1 + STEP % 2
    cut = len(STEP % 1) + (STEP % 2).index("0.125") + 3
    client = Stream(whole[:cut], manners=["hang"])
    log = tmp_path / "log"
    with StepsOfLog(metrics).open() as take:
        tail = LogTail(client, "job", log, take)
        until(lambda: log.exists() and log.read_text(encoding="utf-8") == whole[:cut])
        tail.close(rest=False)
    client.log, client.manners = whole, ["hang"]
    with StepsOfLog(metrics).open() as take:
        tail = LogTail(client, "job", log, take)
        until(lambda: log.read_text(encoding="utf-8") == whole)
        tail.close(rest=True)
    series = read_run(tmp_path).series("critic/rewards/mean")
    assert series.steps.tolist() == [1, 2]
    assert series.values.tolist() == [0.125, 0.125]


def test_half_a_line_of_the_log_is_no_step_for_who_looks(tmp_path: Path) -> None:
    feed = Feed(RunFolder(tmp_path))
    whole = STEP % 1 + STEP % 2
    cut = len(STEP % 1) + (STEP % 2).index("0.125") + 3
    assert [record.step for record in feed.from_log(1, whole[:cut])] == [1]
    (second,) = feed.from_log(1, whole)
    assert (second.step, second.values["critic/rewards/mean"]) == (2, 0.125)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_what_a_full_disk_refused_is_written_later(tmp_path: Path) -> None:
    """The lines are heard meanwhile; who hears them may fail to write as well."""
    heard: list[str] = []

    def hear(line: str) -> None:
        heard.append(line)
        if line == "two":
            raise OSError(errno.ENOSPC, "No space left on device")

    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], check=True)
    try:
        filler = tmp_path / "filler"
        filler.write_bytes(bytes(64 * 1024))
        client = Stream("one\ntwo\nthree\n", manners=["break"])
        tail = LogTail(client, "job", tmp_path / "log", hear)
        until(lambda: heard == ["one", "two", "three"])
        assert (tmp_path / "log").read_bytes() == b""
        filler.unlink()
        client.log += "four\n"
        until(lambda: heard[-1] == "four")
        tail.close(rest=False)
        assert (tmp_path / "log").read_text(encoding="utf-8") == client.log
    finally:
        subprocess.run(["umount", tmp_path], check=True)
