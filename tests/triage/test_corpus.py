"""Every log of the corpus: the state, the category, the root's file and line."""

from pathlib import Path

import orjson
import pytest

from reprise.triage.engine import examine
from reprise.triage.judge import Question
from reprise.triage.model import Clock
from tests.triage.corpus import CASES, ROOT, Scenario, scenarios

ALL = scenarios()


@pytest.mark.parametrize("scenario", ALL, ids=[item.name for item in ALL])
def test_the_answer(scenario: Scenario, tmp_path: Path) -> None:
    found = examine([scenario.write(tmp_path)]).diagnosis
    assert found.state.value == scenario.state
    if scenario.state == ROOT:
        assert found.root is not None
        event = found.root.first
        assert (event.file, event.line) == (scenario.file, scenario.line), event.text
        if scenario.host and scenario.name != "49-oom-then-nccl":
            assert event.host == scenario.host
    if scenario.category:
        assert found.category == scenario.category


def test_there_are_enough_logs() -> None:
    names = [item.name for item in ALL]
    assert len(names) == len(set(names)) >= 60


EXPECTED = sorted(CASES.glob("*/expected.json"))


@pytest.mark.parametrize("folder", EXPECTED, ids=[path.parent.name for path in EXPECTED])
def test_the_cascade_of_a_shipped_case(folder: Path) -> None:
    expected = orjson.loads(folder.read_bytes())
    found = examine([folder.parent], hosts={"node02": "10.8.0.12"}).diagnosis
    assert found.root is not None
    groups = [*found.cascade, *found.confirmations]
    known = {(group.first.file, group.first.line) for group in groups}
    known |= {(group.last.file, group.last.line) for group in [found.root, *found.cascade]}
    # Lines of the root's own traceback, advice of its message, and folded repeats have no group.
    beside = {
        "49-oom-then-nccl": 2,
        "53-ecc": 1,
        "58-reward-keyerror-hydra-tail": 1,
        "59-mccl-path-missing": 0,
    }
    missing = [item for item in expected["cascades"] if (item["file"], item["line"]) not in known]
    assert len(missing) <= beside.get(folder.parent.name, 0), missing
    event = found.root.first
    if expected.get("host", "").startswith("10."):
        assert event.host == expected["host"]
    for name in ("path", "gpu_bus", "iface"):
        if name in expected:
            assert event.facts[name] == expected[name]
    if "rank" in expected:
        assert event.rank == expected["rank"]
    if "phase" in expected:
        assert expected["phase"].startswith(event.phase)


def test_what_shared_memory_numbers_a_later_line_adds() -> None:
    found = examine([CASES / "54-host-oom-kill" / "job.log"]).diagnosis
    assert found.root is not None
    facts = found.root.first.facts
    assert (facts["used"], facts["total"], facts["node"]) == ("1992.1GB", "2015.5GB", "10.8.0.14")
    control = examine([CASES / "54-host-oom-kill" / "control.log"]).diagnosis
    assert (control.state.value, control.category) == ("no_primary_cause", "unknown_worker_death")


def test_early_warnings_are_one_entry_with_first_and_last() -> None:
    found = examine([CASES / "56-disk-full"]).diagnosis
    [early] = found.confirmations
    lines = (CASES / "56-disk-full" / "job.log").read_text(encoding="utf-8").splitlines()
    warnings = [number for number, line in enumerate(lines, 1) if "95% full" in line]
    assert (early.first.line, early.last.line, early.count) == (
        warnings[0],
        warnings[-1],
        len(warnings),
    )


def test_the_ranks_that_did_not_report_are_named(tmp_path: Path) -> None:
    hang = next(item for item in ALL if item.name == "hang")
    assert examine([hang.write(tmp_path)]).diagnosis.missing_ranks == (2,)


def test_a_run_that_is_known_to_have_succeeded_has_no_root(tmp_path: Path) -> None:
    failed = next(item for item in ALL if item.name == "oom-update")
    folder = failed.write(tmp_path)
    assert examine([folder], Question("succeeded")).diagnosis.state.value == "no_failure"


def test_a_run_that_is_known_to_have_failed_is_not_called_good(tmp_path: Path) -> None:
    good = next(item for item in ALL if item.name == "good-plain")
    found = examine([good.write(tmp_path)], Question("failed")).diagnosis
    assert found.state.value == "no_primary_cause"


def test_a_clock_that_is_ahead_changes_the_order(tmp_path: Path) -> None:
    # By its own clock n2 failed first; it is 60 s behind.
    line = "2026-08-02 10:{}:00,000 ERROR [rank{}] OSError: [Errno {}] {}\n"
    (tmp_path / "n1").mkdir()
    (tmp_path / "n2").mkdir()
    (tmp_path / "n1" / "w.err").write_text(line.format("00", 0, 28, "No space left on device"))
    (tmp_path / "n2" / "w.err").write_text(line.format("00", 1, 116, "Stale file handle"))
    unknown = examine([tmp_path]).diagnosis
    assert not unknown.certain and len(unknown.rivals) == 1
    clocks = {"n1": Clock(30.0), "n2": Clock(-30.0)}
    found = examine([tmp_path], Question(clocks=clocks)).diagnosis
    assert found.category == "disk_full" and found.certain
    found = examine([tmp_path], Question(clocks={"n1": Clock(-30.0), "n2": Clock(30.0)})).diagnosis
    assert found.category == "io_error" and found.certain


def test_a_log_that_a_build_server_quotes(tmp_path: Path) -> None:
    quoted = "  | [2025-03-10T15:07:20Z] ERROR 03-10 08:07:20 [core.py:302] "
    lines = [
        "EngineCore hit an exception: Traceback (most recent call last):",
        '  File "/vllm/v1/engine/core.py", line 294, in run_engine_core',
        "    engine_core = EngineCoreProc(*args, **kwargs)",
        "ValueError: No available memory for the cache blocks. Try increasing it.",
    ]
    (tmp_path / "a.log").write_text("".join(f"{quoted}{line}\n" for line in lines))
    found = examine([tmp_path]).diagnosis
    assert found.root is not None
    assert (found.category, found.root.first.line) == ("kv_cache", 4)


def test_the_hosts_of_several_folders(tmp_path: Path) -> None:
    for host in ("n1", "n2"):
        (tmp_path / "a" / host).mkdir(parents=True)
        (tmp_path / "a" / host / "w.err").write_text("fine\n")
    (tmp_path / "b.log").write_text("fine\n")
    files = examine([tmp_path / "a", tmp_path / "b.log"]).files
    assert [log.host for log in files] == ["n1", "n2", ""]
