"""The clocks of hosts, measured by the script that collects their logs."""

import dataclasses
import time
from pathlib import Path

import pytest

from reprise.cluster.answer import Answer, AnswerKind
from reprise.core.project import find_project
from reprise.flows.triage.clocks import CLOCKS, HostClock, measure, read_clocks, write_clocks
from reprise.flows.triage.explain import triage_paths
from reprise.triage.model import Clock


def answer(first: str, last: str, began: float = 1000.0, ended: float = 1010.0) -> Answer:
    output = f"clock {first} +0000\nH4sIAAAA\nclock {last} +0000\n"
    return Answer("node1", AnswerKind.OK, 0, output, "", began, ended)


@pytest.mark.parametrize(
    ("first", "last", "ahead", "within"),
    [
        # The script ran for 8 of the call's 10 seconds: how long it took does not count.
        ("1301.0", "1309.0", 300.0, 1.0),
        ("701.0", "709.0", -300.0, 1.0),
        # 0.2 s before it, 1.8 s after it: the middle.
        ("1000.2", "1008.2", -0.8, 1.0),
        # A date without nanoseconds: the seconds are known to one.
        ("1301.%N", "1309.%N", 300.5, 1.5),
    ],
)
def test_the_work_of_the_script_is_not_part_of_the_measurement(
    first: str, last: str, ahead: float, within: float
) -> None:
    clock = measure(answer(first, last))
    assert clock is not None
    assert (clock.ahead, clock.within) == (pytest.approx(ahead), pytest.approx(within))


def test_a_second_answer_on_the_connection_narrows_the_bound() -> None:
    # Logging in took 2 s of the first; it alone says 1 s, give or take 1 s.
    first = answer("1002.0", "1010.0")
    second = answer("1020.01", "1020.02", 1020.0, 1020.04)
    clock = measure(first, second)
    assert clock is not None
    assert (clock.ahead, clock.within) == (pytest.approx(0.005), pytest.approx(0.005))
    # Set between the two by a minute: no one offset fits both.
    assert measure(first, answer("1080.01", "1080.02", 1020.0, 1020.04)) is None


@pytest.mark.parametrize(
    "given",
    [
        dataclasses.replace(answer("1.0", "2.0"), output="H4sIAAAA\n"),
        dataclasses.replace(answer("1.0", "2.0"), output="clock 1301.0 +0000\nH4sI"),
        # Set back in the middle of it.
        answer("1305.0", "1240.0"),
        # Set ahead: the script cannot have taken longer than the call.
        answer("1305.0", "1400.0"),
    ],
    ids=["no-clock", "cut", "set-back", "set-ahead"],
)
def test_what_is_no_measurement_is_unknown(given: Answer) -> None:
    clock = measure(given)
    assert clock is None or clock.within > 30


def test_the_heads_clock_is_that_of_the_jobs_log(tmp_path: Path) -> None:
    clocks = {
        ("node1", "10.0.0.1"): HostClock(120.0, 0.2, 0.0),
        ("node2", "10.0.0.2"): HostClock(-3.0, 0.1, 8 * 3600.0),
    }
    write_clocks(tmp_path, "node1", clocks)
    found = read_clocks([tmp_path / "none", tmp_path])
    assert found[""] == found["node1"] == found["10.0.0.1"] == Clock(120.0, 0.2)
    # Its logs print another local time.
    assert found["node2"] == found["10.0.0.2"] == Clock(8 * 3600.0 - 3.0, 0.1)


def test_a_given_clock_counts_by_every_name_of_the_host(tmp_path: Path) -> None:
    write_clocks(tmp_path, "node1", {("node1", "10.0.0.1"): HostClock(120.0, 0.2, 0.0)})
    found = read_clocks([tmp_path], {"10.0.0.1": Clock(7.0), "node9": Clock(1.0)})
    assert found[""] == found["node1"] == found["10.0.0.1"] == Clock(7.0)
    assert found["node9"] == Clock(1.0)


@pytest.mark.parametrize("text", ["", "[]", '{"head": "n1", "hosts": [{"name": "n1"}]}', "{"])
def test_a_damaged_file_gives_no_clock(tmp_path: Path, text: str) -> None:
    (tmp_path / CLOCKS).write_text(text)
    assert read_clocks([tmp_path]) == {}


def stamp(moment: float) -> str:
    whole = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment))
    return f"{whole},{int(moment % 1 * 1000):03d}"


def test_the_order_follows_the_measured_clocks(tmp_path: Path) -> None:
    # n1 failed a second before n2; its clock is 300 s ahead.
    (tmp_path / "n1").mkdir()
    (tmp_path / "n2").mkdir()
    real = 1795958969.25
    lines = {
        "n1": f"{stamp(real + 300)} ERROR OSError: [Errno 28] No space left on device\n",
        "n2": f"{stamp(real + 1)} ERROR OSError: [Errno 116] Stale file handle\n",
    }
    for host, line in lines.items():
        (tmp_path / host / "w.err").write_text(line)
    project = find_project()
    _, examined = triage_paths(project, [str(tmp_path)])
    assert examined.diagnosis.category == "io_error"
    clocks = {
        ("n1", "10.0.0.1"): HostClock(300.0, 0.2, 0.0),
        ("n2", "10.0.0.2"): HostClock(0.0, 0.2, 0.0),
    }
    write_clocks(tmp_path, "n1", clocks)
    _, examined = triage_paths(project, [str(tmp_path)])
    assert examined.diagnosis.category == "disk_full" and examined.diagnosis.certain
    # What the operator says counts more.
    _, examined = triage_paths(project, [str(tmp_path)], clocks={"10.0.0.1": Clock(0.0)})
    assert examined.diagnosis.category == "io_error"
    # Measured too roughly to tell: both are shown.
    clocks["n1", "10.0.0.1"] = HostClock(300.0, 1.5, 0.0)
    write_clocks(tmp_path, "n1", clocks)
    _, examined = triage_paths(project, [str(tmp_path)])
    assert not examined.diagnosis.certain and len(examined.diagnosis.rivals) == 1
