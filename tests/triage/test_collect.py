"""Logs of hosts, collected by the script that runs on them."""

import base64
import io
import os
import tarfile
from pathlib import Path

import pytest

from reprise.cluster.answer import Answer, AnswerKind
from reprise.core.project import find_project
from reprise.flows.triage.clocks import measure, read_clocks
from reprise.flows.triage.explain import triage_attempt
from reprise.flows.triage.logs import collect_logs, unpack
from reprise.runs.ray.local_ray import session_logs
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import AttemptOutcome

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.40 GiB.\n"
DIED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    logs = session_logs(tmp_path / "ray")
    logs.mkdir(parents=True)
    (logs / "worker-a-01000000-41.err").write_text("x" * 400_000 + "\n" + OOM)
    (logs / "raylet.out").write_text("started\n")
    (logs / "unrelated.bin").write_bytes(b"\0" * 100)
    (logs / "worker-b $(touch hit).err").write_text("quiet\n")
    run = RunFolder.create(
        tmp_path / "runs", "small", {"steps": 3, "ray": {"temp_dir": str(tmp_path / "ray")}}
    )
    run.begin_attempt(None)
    run.log_file(1).write_text(DIED)
    run.end_attempt(1, AttemptOutcome.FAILED, None, "")
    return run


def test_the_workers_own_log_names_the_root(run: RunFolder) -> None:
    said: list[str] = []
    collect_logs(find_project(), run, 1, False, None, said.append)
    assert said == []
    folder = run.path / "logs" / "attempt-1" / "localhost"
    names = {path.name for path in folder.iterdir()}
    assert {"worker-a-01000000-41.err", "raylet.out", "worker-b $(touch hit).err"} <= names
    assert "unrelated.bin" not in names
    clocks = read_clocks([folder.parent])
    # One machine: its clock is not ahead of itself.
    assert clocks["localhost"] == clocks[""] and abs(clocks[""].ahead) <= clocks[""].within < 1
    # The end of a long log is kept, with its last line whole.
    kept = (folder / "worker-a-01000000-41.err").read_text(encoding="utf-8")
    assert len(kept) == 300_000 and kept.endswith("\n" + OOM)
    found = triage_attempt(find_project(), run, 1).diagnosis
    assert found.category == "gpu_oom" and found.root is not None
    assert found.root.first.host == "localhost"


def test_a_run_without_a_ray_of_its_own_has_the_jobs_log_only(run: RunFolder) -> None:
    with run.edit() as state:
        state.ray = None
    collect_logs(find_project(), run, 1, True, None, lambda text: None)
    assert not (run.path / "logs" / "attempt-1").exists()
    assert triage_attempt(find_project(), run, 1).diagnosis.root is None


def test_an_answer_that_was_cut_gives_what_arrived(tmp_path: Path) -> None:
    for name in ("a.err", "b.err"):
        (tmp_path / name).write_bytes(os.urandom(200_000))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("a.err", "b.err"):
            archive.add(tmp_path / name, f"./{name}")
    text = "clock 10.5 +0000\n" + base64.encodebytes(packed.getvalue()).decode()
    cut = Answer("node1", AnswerKind.CUT, None, text[: len(text) * 3 // 4], "", 10.0, 11.0)
    said = unpack(cut, tmp_path / "node1")
    assert said.startswith("only a part of the logs of node1 arrived"), said
    assert (tmp_path / "node1" / "a.err").read_bytes() == (tmp_path / "a.err").read_bytes()
    # Its clock was printed once only, and nothing says how long the script took.
    assert measure(cut) is None
    gone = Answer("node2", AnswerKind.UNREACHABLE, None, "", "no route", 10.0, 11.0)
    assert unpack(gone, tmp_path / "node2") == "logs of node2 were not collected: no route"
