"""The runner of a visit's commands: order, memory, limits, and taking up where it stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.saying import started

JOBS = Path(__file__).resolve().parents[2] / "scripts/gpu/jobs.py"


def run(folder: Path, jobs: list[dict[str, Any]], cards: str = "0,1") -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, str(JOBS), str(folder / "jobs.json"), str(folder / "out")]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": cards}
    # Its waiting between two starts is for Ray's ports: here nothing takes any.
    environment["JOBS_STAGGER_SECONDS"] = "0"
    subprocess.run(command, env=environment, check=False, timeout=300)
    found: dict[str, Any] = json.loads((folder / "out/jobs.done.json").read_text(encoding="utf-8"))
    return found


def shell(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "command": ["sh", "-c", text], **more}


def test_one_after_another_and_what_follows_a_failure_is_left_out(tmp_path: Path) -> None:
    order = tmp_path / "order"
    jobs = [
        shell("last", f"echo last >>{order}", after=["first"]),
        shell("first", f"sleep 0.2; echo first >>{order}"),
        shell("bad", "echo the reason; exit 3"),
        shell("never", f"echo never >>{order}", after=["bad"]),
        shell("verdict", "exit 1", good=[0, 1]),
    ]
    done = run(tmp_path / "a", jobs)
    assert order.read_text(encoding="utf-8").split() == ["first", "last"]
    assert {name: row["state"] for name, row in done.items()} == {
        "last": "ok",
        "first": "ok",
        "bad": "exit code 3",
        "never": "left out: one before it failed",
        "verdict": "ok",
    }
    assert "the reason" in (tmp_path / "a/out/bad.log").read_text(encoding="utf-8")


def test_a_command_that_failed_is_begun_anew_as_often_as_it_says(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    jobs = [
        shell("race", f"test -e {mark} || {{ touch {mark}; echo in use; exit 1; }}", tries=2),
        shell("bad", "echo again; exit 3", tries=2),
        shell("after", "true", after=["race"]),
    ]
    done = run(tmp_path / "a", jobs)
    assert {name: (row["state"], row.get("tried")) for name, row in done.items()} == {
        "race": ("ok", 2),
        "bad": ("exit code 3", 2),
        "after": ("ok", 1),
    }
    assert (tmp_path / "a/out/bad.log").read_text(encoding="utf-8").split() == ["again"] * 2


def test_a_command_can_wait_for_the_end_of_others_however_they_end(tmp_path: Path) -> None:
    order = tmp_path / "order"
    jobs = [
        shell("after-all", f"echo last >>{order}", once=["good", "bad"]),
        shell("good", f"sleep 0.3; echo good >>{order}"),
        shell("bad", "exit 3"),
    ]
    done = run(tmp_path / "a", jobs)
    assert order.read_text(encoding="utf-8").split() == ["good", "last"]
    assert (done["bad"]["state"], done["after-all"]["state"]) == ("exit code 3", "ok")


def test_the_hosts_memory_is_not_given_away_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBS_HOST_GIB", "20")
    order = tmp_path / "order"
    text = f"echo begin >>{order}; sleep 0.6; echo end >>{order}"
    run(tmp_path / "a", [shell(name, text, host_gib=11) for name in "ab"])
    assert order.read_text(encoding="utf-8").split() == ["begin", "end", "begin", "end"]
    # More than there is: alone.
    done = run(tmp_path / "b", [shell("large", "true", host_gib=99)])
    assert done["large"]["state"] == "ok"


def test_a_command_that_comes_first_holds_back_those_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBS_HOST_GIB", "20")
    order = tmp_path / "order"
    jobs = [
        shell("small", f"sleep 0.6; echo small >>{order}", host_gib=11),
        shell("large", f"echo large >>{order}", host_gib=15, first=True),
        shell("later", f"echo later >>{order}", host_gib=1),
    ]
    run(tmp_path / "a", jobs)
    assert order.read_text(encoding="utf-8").split() == ["small", "large", "later"]
    jobs[1]["first"] = False
    order.unlink()
    run(tmp_path / "b", jobs)
    assert order.read_text(encoding="utf-8").split() == ["later", "small", "large"]


def test_a_card_is_not_given_more_than_it_holds(tmp_path: Path) -> None:
    # Each notes how many of its card run beside it.
    text = (
        f"d={tmp_path}/c$CUDA_VISIBLE_DEVICES; mkdir -p $d; touch $d/$$; "
        "ls $d | wc -l; sleep 1.5; rm $d/$$"
    )
    jobs = [shell(f"j{i}", text, gib=60) for i in range(6)]
    done = run(tmp_path / "a", jobs)
    assert {row["state"] for row in done.values()} == {"ok"}
    assert {row["card"] for row in done.values()} == {"0", "1"}
    seen = [int((tmp_path / f"a/out/j{i}.log").read_text(encoding="utf-8")) for i in range(6)]
    assert max(seen) <= 2


def test_what_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = f"sleep 300 & echo $! >{pid}.part; mv {pid}.part {pid}; sleep 300"
    done = run(tmp_path / "a", [shell("slow", text, limit_s=3)], "0")
    assert done["slow"]["state"] == "over its time limit"
    with contextlib.suppress(psutil.NoSuchProcess):
        left = psutil.Process(int(pid.read_text(encoding="utf-8")))
        _, left_over = psutil.wait_procs([left], timeout=60)
        assert not left_over or left.status() == psutil.STATUS_ZOMBIE


def test_a_second_call_takes_up_what_has_not_ended_well(tmp_path: Path) -> None:
    log = tmp_path / "log"
    jobs = [
        shell("good", f"echo good >>{log}"),
        shell("flaky", f"test -e {tmp_path}/now || exit 1"),
    ]
    assert run(tmp_path / "a", jobs)["flaky"]["state"] == "exit code 1"
    (tmp_path / "now").touch()
    assert run(tmp_path / "a", jobs)["flaky"]["state"] == "ok"
    assert log.read_text(encoding="utf-8").split() == ["good"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_runs_ends_with_the_runner(tmp_path: Path, number: signal.Signals) -> None:
    jobs = [shell("long", "echo $$; sleep 300"), shell("next", "true", after=["long"])]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, JOBS, tmp_path / "jobs.json", tmp_path / "out"]
    log = tmp_path / "out/long.log"
    with started(command, env=os.environ | {"CUDA_VISIBLE_DEVICES": "0"}) as process:
        deadline = time.monotonic() + 60
        while not log.is_file() or not log.read_text(encoding="utf-8").endswith("\n"):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        job = psutil.Process(int(log.read_text(encoding="utf-8")))
        process.send_signal(number)
        process.communicate(timeout=120)
    assert process.returncode == 130
    assert not job.is_running() or job.status() == psutil.STATUS_ZOMBIE
    left = json.loads((tmp_path / "out/jobs.done.json").read_text(encoding="utf-8"))
    assert {row["state"] for row in left.values()} == {"not run to its end"}


def test_a_command_for_two_cards_gets_both_and_counts_on_both(tmp_path: Path) -> None:
    text = "echo $CUDA_VISIBLE_DEVICES"
    beside = f"ls {tmp_path}/busy 2>/dev/null | wc -l"
    jobs = [
        shell(
            "two", f"touch {tmp_path}/busy; {text}; sleep 2; rm {tmp_path}/busy", gib=80, cards=2
        ),
        shell("one", f"{text}; {beside}", gib=60),
    ]
    done = run(tmp_path / "a", jobs)
    assert done["two"]["card"] == "0,1" and done["two"]["state"] == "ok"
    assert (tmp_path / "a/out/two.log").read_text(encoding="utf-8") == "0,1\n"
    # 80 and 60 GiB are more than a card has, on either.
    assert (tmp_path / "a/out/one.log").read_text(encoding="utf-8").split()[1] == "0"


def test_a_command_for_more_cards_than_there_are_is_said_to_be_left_out(tmp_path: Path) -> None:
    done = run(tmp_path / "a", [shell("four", "true", cards=4), shell("one", "true")])
    assert done["four"]["state"] == "left out: it needs 4 GPUs, there are 2"
    assert done["one"]["state"] == "ok"


def test_after_its_time_nothing_more_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBS_SECONDS", "1")
    jobs = [shell("first", "sleep 2"), shell("second", "true", after=["first"])]
    done = run(tmp_path / "a", jobs)
    assert done["first"]["state"] == "ok"
    assert done["second"]["state"] == "not run to its end"
