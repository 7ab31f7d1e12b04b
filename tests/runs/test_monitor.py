"""What is seen of a run from its folder alone, and how it is told."""

import os
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from saved import saved_step

from reprise.core.findings import Severity
from reprise.runs.state.folder import RunFolder
from reprise.runs.watch import watchers
from reprise.runs.watch.monitor import Monitor
from reprise.runs.watch.seen import Seen, duration, step_line, table_rows
from reprise.runs.watch.view import View
from tests.states import change

STEP = {
    "critic/rewards/mean": 0.5,
    "training/rollout_probs_diff_mean": 0.001,
    "rollout_corr/kl": 1e-4,
    "actor/entropy": 0.9,
    "response_length/mean": 3.2,
    "response_length/clip_ratio": 0.02,
    "perf/throughput": 420.0,
    "timing_s/step": 4.0,
}


def write(folder: RunFolder, attempt: int, step: int, **values: Any) -> None:
    data = {name.replace("__", "/"): value for name, value in values.items()} or STEP
    with folder.metrics_file(attempt).open("ab") as file:
        file.write(orjson.dumps({"step": step, "data": data}) + b"\n")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = RunFolder.create(tmp_path, "rehearsal", {"steps": 40, "attempts": []})
    run.begin_attempt(None)
    change(run, state="running", checkpoints=str(tmp_path / "saved"))
    return run


def test_the_numbers_of_the_newest_step(folder: RunFolder) -> None:
    write(folder, 1, 0, **{"val-core/x/acc/mean@1": 0.25})
    for step in (1, 2, 3):
        write(folder, 1, step)
    seen = Monitor(folder).look()
    assert (seen.step, seen.total, seen.attempt) == (3, 40, 1)
    assert (seen.step_seconds, seen.left) == (4.0, 4.0 * 37)
    assert seen.values["reward"] == 0.5
    assert seen.values["throughput"] == 420.0
    assert seen.validation == ("val-core/x/acc/mean@1", 0.25, 0)
    assert seen.since_step is not None and seen.since_step < 60


def test_a_second_look_reads_what_is_new_and_waits_for_the_end_of_a_line(folder: RunFolder) -> None:
    monitor = Monitor(folder)
    assert monitor.look().step == 0
    write(folder, 1, 1)
    with folder.metrics_file(1).open("ab") as file:
        file.write(b'{"step": 2, "data": {"critic/rewa')
    assert monitor.look().step == 1
    with folder.metrics_file(1).open("ab") as file:
        file.write(b'rds/mean": 0.75}}\n')
    seen = monitor.look()
    assert (seen.step, seen.values["reward"]) == (2, 0.75)


def test_a_later_attempt_wins_and_its_alarms_are_told_anew(folder: RunFolder) -> None:
    for step in range(1, 5):
        write(folder, 1, step, **{"actor/grad_norm": 0.3 if step < 3 else float("nan")})
    folder.metrics_file(1).write_bytes(folder.metrics_file(1).read_bytes().replace(b"null", b"NaN"))
    monitor = Monitor(folder)
    assert [f.where for f in monitor.look().fresh] == ["actor/grad_norm@3"]
    folder.begin_attempt(2)
    write(folder, 2, 3, **{"actor/grad_norm": 0.4})
    seen = monitor.look()
    assert (seen.attempt, seen.resumed_from, seen.step) == (2, 2, 3)
    assert seen.standing == [] and seen.fresh == []


def test_what_comes_again_at_the_same_step_is_told_again(folder: RunFolder) -> None:
    nan = b'{"step": 1, "data": {"actor/grad_norm": NaN}}\n'
    folder.metrics_file(1).write_bytes(nan)
    monitor = Monitor(folder)
    (first,) = monitor.look().fresh
    folder.begin_attempt(None)
    folder.metrics_file(2).write_bytes(nan)
    assert monitor.look().fresh == [first]
    assert monitor.look().fresh == []
    # Who attaches then knows from the events what was told, and of which attempt.
    later = Monitor(folder)
    later.told_before([first.to_json() | {"attempt": 1}])
    assert later.look().fresh == [first]
    later = Monitor(folder)
    later.told_before([first.to_json() | {"attempt": number} for number in (1, 2)])
    assert later.look().fresh == []


def test_the_start_of_a_later_attempt_is_no_silence(folder: RunFolder) -> None:
    for step in (1, 2, 3):
        write(folder, 1, step)
    folder.begin_attempt(2)
    with folder.edit() as state:
        state.attempts[1].started = time.time() - 900
    seen = Monitor(folder).look()
    assert seen.since_step is not None and 890 < seen.since_step < 960
    assert seen.standing == []
    late = Monitor(folder).look(now=time.time() + 1000)
    assert [f.rule for f in late.standing] == ["run-alarm-silence"]
    assert "could not be queried" in late.standing[0].message
    write(folder, 2, 3)
    assert [f.rule for f in Monitor(folder).look(now=time.time() + 40).standing] == []
    assert [f.rule for f in Monitor(folder).look(now=time.time() + 62).standing] == [
        "run-alarm-silence"
    ]


@pytest.mark.parametrize("skew", [-1000.0, 1000.0])
def test_a_storage_with_another_clock_is_no_silence_and_hides_none(
    folder: RunFolder, skew: float
) -> None:
    monitor = Monitor(folder)
    now = time.time()
    monitor.look(now)
    for step in (1, 2, 3):
        now += 4
        write(folder, 1, step)
        os.utime(folder.metrics_file(1), (now + skew, now + skew))
        seen = monitor.look(now)
        assert seen.since_step is not None and seen.since_step < 5
    assert monitor.look(now + 40).standing == []
    assert [f.rule for f in monitor.look(now + 90).standing] == ["run-alarm-silence"]


def test_what_an_earlier_watch_told_is_not_fresh(folder: RunFolder) -> None:
    write(folder, 1, 1, **{"critic/rewards/mean": None})
    monitor = Monitor(folder)
    told = [finding.to_json() for finding in monitor.look().fresh]
    assert len(told) == 1
    later = Monitor(folder)
    later.told_before(told)
    seen = later.look()
    assert seen.fresh == [] and len(seen.standing) == 1


def test_alarms_stand_and_are_fresh_once(folder: RunFolder) -> None:
    saved_step(Path(folder.read().checkpoints), 1)
    write(folder, 1, 1, **{"actor/grad_norm": 0.3})
    write(folder, 1, 2, **{"actor/grad_norm": None})
    monitor = Monitor(folder)
    first = monitor.look()
    assert "checkpoint of step 1" in first.fresh[0].fix
    again = monitor.look()
    assert again.fresh == [] and len(again.standing) == 1


def test_the_newest_complete_checkpoint_and_its_age(folder: RunFolder) -> None:
    saved = Path(folder.read().checkpoints)
    saved_step(saved, 10)
    (saved_step(saved, 20) / "data.pt").unlink()
    an_hour_ago = time.time() - 3600
    os.utime(saved / "global_step_10" / "data.pt", (an_hour_ago, an_hour_ago))
    seen = Monitor(folder).look()
    assert seen.checkpoint is not None and seen.checkpoint[0] == 10
    assert 3590 < seen.checkpoint[1] < 3700


def test_a_checkpoint_that_is_saved_meanwhile_is_seen(folder: RunFolder) -> None:
    saved = Path(folder.read().checkpoints)
    saved_step(saved, 10)
    monitor = Monitor(folder)
    now = time.time()
    assert monitor.look(now).checkpoint == (10, pytest.approx(0, abs=5))
    saved_step(saved, 20)
    assert monitor.look(now + 1).checkpoint is not None
    seen = monitor.look(now + 40)
    assert seen.checkpoint is not None and seen.checkpoint[0] == 20
    assert 35 < seen.checkpoint[1] < 45


def test_rays_own_warning_of_a_full_disk(folder: RunFolder) -> None:
    line = (
        "(raylet, ip=10.0.0.2) file_system_monitor.cc:116: /tmp/ray/session is over 95% full, "
        "available space: 20.1 GB; capacity: 400 GB\n"
    )
    write(folder, 1, 1)
    folder.log_file(1).write_text("started\n" + 3 * line)
    found = [f for f in Monitor(folder).look().standing if f.rule == "run-alarm-disk"]
    assert any("over 95% full" in f.message and "3 such lines" in f.message for f in found)


def test_a_step_in_one_line_and_in_a_table(folder: RunFolder) -> None:
    write(folder, 1, 0, **{"val-core/x/acc/mean@1": 0.25})
    write(folder, 1, 1)
    seen = Monitor(folder).look()
    assert step_line(seen) == (
        "step 1/40, reward 0.5, probs diff 0.001, KL 0.0001, entropy 0.9, length 3.2, "
        "clipped 0.02, tokens/s 420, 4.0 s/step, 2.6 min left"
    )
    rows = dict(table_rows(seen))
    assert rows["step"].startswith("1 of 40, 4.0 s/step, 2.6 min left")
    assert rows["validation"] == "0.25 at step 0 (val-core/x/acc/mean@1)"
    assert "checkpoint" not in rows and "nodes" not in rows


def test_without_a_terminal_each_step_has_one_line(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    monitor, view = Monitor(folder), View()
    with view:
        for step in (1, 2):
            write(folder, 1, step)
            view.show(monitor.look())
            view.show(monitor.look())
        write(folder, 1, 3, **{"critic/rewards/mean": None})
        view.show(monitor.look())
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line.split(" ", 1)[1] for line in err.splitlines()]
    starts = [line.split(",")[0] for line in lines]
    assert starts[:2] == ["step 1/40", "step 2/40"]
    assert any(line.startswith("error critic/rewards/mean@3: NaN") for line in lines)
    assert starts[-1] == "step 3/40"


def test_a_new_attempt_has_a_line(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    monitor, view = Monitor(folder), View()
    write(folder, 1, 3)
    view.show(monitor.look())
    folder.begin_attempt(2)
    view.show(monitor.look())
    write(folder, 2, 3)
    view.show(monitor.look())
    write(folder, 2, 4)
    view.show(monitor.look())
    told = [line.split(" ", 1)[1].split(",")[0] for line in capsys.readouterr().err.splitlines()]
    again = ["step 3/40", "step 4/40"]
    assert told == ["step 3/40", "attempt 2 continues from step 2", *again]


def test_a_quiet_view_says_nothing(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, 1, 1, **{"critic/rewards/mean": None})
    with View(quiet=True) as view:
        view.show(Monitor(folder).look())
        view.phase("driver")
    assert capsys.readouterr() == ("", "")


def test_a_table_on_a_terminal_shows_the_alarms(folder: RunFolder) -> None:
    write(folder, 1, 1, **{"critic/rewards/mean": None})
    view = View(plain=False)
    with view:
        view.show(Monitor(folder).look())
        console = view._live.console if view._live else None
        assert console is not None
        with console.capture() as drawn:
            console.print(view._live.renderable)
    assert "NaN or Inf" in drawn.get() and "1 of 40" in drawn.get()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.2, "4 s"), (90, "1.5 min"), (7500, "2 h 5 min"), (100_000, "1 d 3 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("since", "usual", "expected"),
    [
        (59, 5.0, False),  # five times five seconds, but under a minute
        (61, 5.0, True),
        (2999, 600.0, False),
        (3001, 600.0, True),
        (1799, None, False),
        (1801, None, True),
    ],
)
def test_silence(since: float, usual: float | None, expected: bool) -> None:
    assert watchers.silent(since, usual) is expected


def test_silence_tells_what_is_waited_for() -> None:
    found = watchers.silence("r", 7, 400.0, 40.0, ["node a (10.0.0.2) is DEAD: no heartbeat"])
    assert (found.where, found.severity) == ("r@7", Severity.WARNING)
    assert "no step for 400 s, 10 times the median step" in found.message
    assert "no heartbeat" in found.message
    assert "nothing is pending" in watchers.silence("r", 0, 2000.0, None, []).message


GIB = 2**30


@pytest.mark.parametrize(
    ("total", "free", "checkpoint", "severity"),
    [
        (1000 * GIB, 100 * GIB, 90 * GIB, None),
        (1000 * GIB, 100 * GIB, 101 * GIB, Severity.WARNING),
        (1000 * GIB, 9 * GIB, 0, Severity.ERROR),
        (1000 * GIB, 11 * GIB, 0, None),
        (20 * GIB, GIB - 1, 0, Severity.ERROR),
        # Ten petabytes, of which less than a hundredth is free.
        (10 * 2**20 * GIB, 60 * 2**10 * GIB, 3 * 2**10 * GIB, None),
        (10 * 2**20 * GIB, 60 * 2**10 * GIB, 70 * 2**10 * GIB, Severity.WARNING),
        (10 * 2**20 * GIB, 49 * GIB, 0, Severity.ERROR),
    ],
)
def test_a_disk_that_fills(
    tmp_path: Path, total: int, free: int, checkpoint: int, severity: Severity | None
) -> None:
    found = watchers.disk(tmp_path, total, free, checkpoint)
    assert (found.severity if found else None) is severity


def test_one_file_system_is_told_of_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    places = (tmp_path, tmp_path / "a", tmp_path / "none")
    assert len(list(watchers.disks(places, checkpoint=2**80))) == 1
    assert list(watchers.disks((tmp_path / "none",), checkpoint=2**80)) == []


def test_json_of_a_look() -> None:
    seen = Seen("r", "m", "running", checkpoint=(3, 5.0), nodes=(1, 2, 8.0), step_seconds=2.0)
    seen.total = 10
    found = seen.to_json()
    assert found["checkpoint"] == {"step": 3, "age": 5.0}
    assert found["nodes"] == {"alive": 1, "known": 2, "gpus": 8.0}
    assert found["left"] == 20.0
    orjson.dumps(found)
