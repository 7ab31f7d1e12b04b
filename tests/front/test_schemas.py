"""What is written agrees with the published schemas, and what older versions wrote is read."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reprise.cluster.diagnosis import diagnosis_of, read_diagnosis
from reprise.cluster.record import Node, find_record, new_record
from reprise.core.documents import write_document
from reprise.core.errors import OperatorError
from reprise.curves import judge_run, load_reference
from reprise.curves.verdict import read_verdict, write_verdict
from reprise.metrics import read_run
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import AttemptOutcome, PrivateRay, Process, RunStatus
from tests.cluster.make import base, judged

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "recipes" / "rehearsal" / "reference"
MANIFESTS = sorted(ROOT.glob("recipes/*/reference*/reference.toml"))


def agrees(value: Any, name: str) -> None:
    schema = json.loads((ROOT / "docs" / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    assert [error.message for error in validator.iter_errors(value)] == []


def without_version(path: Path) -> None:
    """As the version before wrote it."""
    value = json.loads(path.read_text(encoding="utf-8"))
    assert value.pop("schema") == 1
    path.write_text(json.dumps(value))


def test_the_state_of_a_run(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "m", {"steps": 4, "hosts": [{"name": "n1"}]})
    agrees(json.loads(folder.state_file.read_text(encoding="utf-8")), "run")
    folder.begin_attempt(None)
    folder.end_attempt(1, AttemptOutcome.FAILED, None, "out of memory")
    with folder.edit() as state:
        state.status = RunStatus.FAILED
        state.watcher = Process(pid=1, created=1.5)
        state.ray = PrivateRay(temp_dir="/tmp/x")
    agrees(json.loads(folder.state_file.read_text(encoding="utf-8")), "run")
    with pytest.raises(AssertionError):
        agrees({"state": "paused"}, "run")


def test_a_verdict(tmp_path: Path) -> None:
    reference = load_reference(REFERENCE)
    whole = judge_run(read_run(REFERENCE / "seed-101.jsonl"), reference, 40)
    # A run that was cut short: some numbers are not known.
    lines = (REFERENCE / "seed-101.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "short.jsonl").write_text("".join(lines[:25]))
    alone = judge_run(read_run(tmp_path / "short.jsonl"), reference, 40)
    for judgement in (whole, alone):
        write_verdict(tmp_path, judgement, reference, {"seed": 101})
        path = tmp_path / "verdict.json"
        agrees(json.loads(path.read_text(encoding="utf-8")), "verdict")
        found = read_verdict(path)
        assert found.outcome is judgement.outcome and len(found.checks) == len(judgement.checks)
        assert found.provenance.run == {"seed": 101}
        without_version(path)
        assert read_verdict(path).to_json() == found.to_json()
    windows = [window for check in found.checks for window in check.windows]
    assert any(item.run is None for item in windows)
    path.write_text('{"outcome": "MAYBE"}')
    with pytest.raises(OperatorError, match="outcome: expected 'PASS', 'FAIL' or 'INCONCLUSIVE'"):
        read_verdict(path)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_reference(path: Path) -> None:
    agrees(tomllib.loads(path.read_text(encoding="utf-8")), "reference")


def test_the_doctors_report(tmp_path: Path) -> None:
    found = judged({"gpu-1": base("gpu-1"), "gpu-2": base("gpu-2", gpus=7)})
    diagnosis = diagnosis_of(found)
    path = tmp_path / "doctor.json"
    write_document(path, diagnosis)
    written = json.loads(path.read_text(encoding="utf-8"))
    agrees(written, "doctor")
    # What --json prints of it is in the file as it was.
    printed = json.loads(json.dumps(found.to_json()))
    for key in ("command", "verdict", "checks", "findings", "profile", "groups"):
        assert written[key] == printed[key]
    without_version(path)
    assert read_diagnosis(path).to_json() == diagnosis.to_json()


def test_the_record_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    hostfile = tmp_path / "hosts"
    values = {"profile": "h20", "python": "python3", "engine": "docker", "image": None}
    ports = {"gcs_port": 6379, "dashboard_port": 8265}
    node = Node(name="n1", slots=8, ip="10.0.0.1", interface="eth0")
    record = new_record(hostfile, values | ports, [node], "/tmp")
    path = record.folder / "cluster.json"
    agrees(json.loads(path.read_text(encoding="utf-8")), "cluster")
    without_version(path)
    found = find_record(hostfile)
    assert found == record and found.address == "http://10.0.0.1:8265"
    path.write_text('{"id": 7, "nodes": []}')
    with pytest.raises(OperatorError, match=r"id: expected a valid string, found 7") as caught:
        find_record(hostfile)
    assert "nodes: " in caught.value.message and str(path) == caught.value.where
