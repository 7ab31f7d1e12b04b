"""The commands as an operator types them, and the page that describes them."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from reprise.core.findings import Report
from reprise.core.project import find_project
from reprise.flows.train.spare import no_other_host
from reprise.flows.triage.explain import add_triage, triage_attempt
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import AttemptOutcome
from reprise.runs.supervise.retry import Failure, Triaged, read_triaged, why_not_again
from tests.triage.corpus import CASES, scenarios

ROOT = Path(__file__).resolve().parents[2]
REPRISE = str(Path(sys.executable).with_name("reprise"))


def reprise(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [REPRISE, *words], capture_output=True, text=True, cwd=ROOT, check=False, timeout=300
    )


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder.create(tmp_path / "runs", "small", {"steps": 3})
    run.begin_attempt(None)
    log = next(item for item in scenarios() if item.name == "oom-update").files["job.log"]
    run.log_file(1).write_bytes(log)
    run.end_attempt(1, AttemptOutcome.FAILED, 2, "")
    return run


@pytest.mark.parametrize(
    ("path", "code"),
    [("53-ecc", 1), ("54-host-oom-kill/control.log", 2)],
)
def test_the_exit_code_and_the_json(path: str, code: int) -> None:
    ran = reprise("triage", "--json", str(CASES / path))
    assert ran.returncode == code, ran.stderr
    value = json.loads(ran.stdout)
    assert value["verdict"] == {1: "problem", 2: "unknown"}[code]
    root = value["triage"]["root"]
    assert (root is not None) == (code == 1)
    if root is not None:
        assert (root["file"], root["line"], root["host"]) == ("job.log", 2, "10.8.0.13")


def test_the_root_is_the_last_thing_printed() -> None:
    ran = reprise("triage", str(CASES / "49-oom-then-nccl"), "--host", "node02=10.8.0.12")
    lines = ran.stdout.splitlines()
    place = [
        number for number, line in enumerate(lines) if "worker-b7c1-01000000-41022.err:2" in line
    ]
    consequence = [number for number, line in enumerate(lines) if "Watchdog caught" in line]
    assert len(place) == 1 and consequence and max(consequence) < place[0]
    assert "host 10.8.0.12, rank 11" in lines[place[0]]
    fix = lines[place[0] + 1]
    measures = (
        "ppo_max_token_len_per_gpu",
        "ppo_micro_batch_size_per_gpu=1",
        "log_prob_max_token_len_per_gpu",
        "context_parallel_size",
        "param_offload",
    )
    places = [fix.index(word) for word in measures]
    assert places == sorted(places)


def test_a_secret_in_a_log_is_not_printed() -> None:
    ran = reprise("triage", str(CASES / "29-env-merge-conflict"))
    assert ran.returncode == 1
    assert "0123456789abcdef" not in ran.stdout + ran.stderr
    assert "NCCL_DEBUG" in ran.stdout


@pytest.mark.parametrize(
    "words",
    [[], ["no-such-run"], ["--clock", "n1=soon", "."], ["--host", "n1", "."]],
)
def test_what_is_typed_wrong_is_explained(words: list[str]) -> None:
    ran = reprise("triage", *words)
    assert ran.returncode == 1
    assert "fix:" in ran.stdout and "Traceback" not in ran.stdout + ran.stderr


def test_an_attempt_that_failed_explains_itself(run: RunFolder) -> None:
    triage_attempt(find_project(), run, 1)
    report = Report("status")
    add_triage(report, run, 1)
    [note] = report.findings
    assert note.where.startswith(f"{run.log_file(1)}:") and "GPU out of memory" in note.message
    assert report.data["triage"]["category"] == "gpu_oom"
    assert read_triaged(run.path / "triage.json", 1) == Triaged(
        "GPU out of memory", "again", "10.8.0.12"
    )
    assert read_triaged(run.path / "triage.json", 2) is None


def test_a_run_is_named_by_its_folder(run: RunFolder) -> None:
    ran = reprise("triage", "--json", str(run.path))
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["triage"]["category"] == "gpu_oom"


def test_the_support_bundle_of_a_run(run: RunFolder, tmp_path: Path) -> None:
    target = tmp_path / "out.tar.gz"
    ran = reprise("support-bundle", str(run.path), "--out", str(target))
    assert ran.returncode == 0, ran.stdout
    with tarfile.open(target) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"triage.json", "run.json", "logs/attempt-1.log", "versions.lock"} <= names


def test_a_retry_follows_the_kind_of_the_failure() -> None:
    bad = Triaged("uncorrectable GPU memory error (ECC)", "exclude_host", "10.8.0.13")
    assert bad.blames_host
    # Another host may take its place; without one, the run ends and names it.
    assert why_not_again(Failure("RuntimeError: CUDA error", 40, None, bad)) is None
    replaced = no_other_host(bad)
    assert replaced is not None and replaced.host == "10.8.0.13" and replaced.obstacle
    never = Triaged("a path does not exist on one of the hosts", "never")
    assert why_not_again(Failure("OSError: x", None, None, never)) is not None
    assert why_not_again(Failure("OSError: x", 40, None, never)) is None
    again = Triaged("a GPU out of memory", "again")
    assert why_not_again(Failure("RuntimeError: x", 40, None, again)) is None
    assert no_other_host(again) is None and no_other_host(None) is None


def test_the_pages_tables_are_those_measured() -> None:
    ran = subprocess.run(
        [sys.executable, "scripts/triage_table.py", "--check"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
