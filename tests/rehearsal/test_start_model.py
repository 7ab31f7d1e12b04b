"""The shipped start model: its bytes are the lock's and the reference's; nothing retrains it."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file
from reprise.core.project import Project, find_project
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions
from reprise.flows.start_model import ENTRY, start_model
from reprise.lock.read import machine_hash, parse_lock, read_lock
from reprise.rehearsal.start_model import WEIGHTS, compare_weights, shipped_model

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = sorted((ROOT / "recipes" / "rehearsal").glob("reference*/reference.toml"))


def test_shipped_bytes_lock_and_cpu_reference_have_one_hash() -> None:
    entry = read_lock(ROOT / "versions.lock").shipped[ENTRY]
    weights = ROOT / entry.path
    assert sha256_file(weights) == entry.sha256
    assert weights.stat().st_size == entry.bytes < 3_000_000
    others = {path.name for path in weights.parent.iterdir()} - {weights.name}
    assert others == set(entry.files), "every file of the folder is locked"
    recorded = tomllib.loads(
        (ROOT / "recipes/rehearsal/reference/reference.toml").read_text(encoding="utf-8")
    )
    assert recorded["provenance"]["model_sha256"] == entry.sha256


def test_every_reference_names_the_model_that_it_started_from() -> None:
    assert REFERENCES
    for file in REFERENCES:
        assert (
            len(tomllib.loads(file.read_text(encoding="utf-8"))["provenance"]["model_sha256"]) == 64
        )


def test_provenance_and_locked_weights_agree() -> None:
    folder = ROOT / "recipes" / "rehearsal" / "model"
    record = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    assert record["weights_sha256"] == sha256_file(folder / WEIGHTS)


@pytest.fixture
def copy(tmp_path: Path) -> Project:
    """A project with all that `prepare` reads, and a Python that would fail to build anything."""
    for name in ("versions.lock", "requirements", "recipes"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name)
        else:
            shutil.copy(source, tmp_path / name)
    project = Project(tmp_path)
    project.rehearsal_python.parent.mkdir(parents=True)
    project.rehearsal_python.write_text("#!/bin/sh\necho the builder must not run >&2; exit 97\n")
    project.rehearsal_python.chmod(0o755)
    return project


def test_a_run_of_the_default_model_trains_none(copy: Project) -> None:
    """On any processor: what a run starts from does not come from a computation."""
    model, _ = Rehearsal(copy, RehearsalOptions(quiet=True)).prepare()
    assert model.sha256 == read_lock(ROOT / "versions.lock").shipped[ENTRY].sha256
    assert model.path == copy.root / "recipes" / "rehearsal" / "model"


def test_another_architecture_is_still_computed(copy: Project) -> None:
    with pytest.raises(OperatorError, match="the builder must not run"):
        Rehearsal(copy, RehearsalOptions(quiet=True, arch="qwen3")).prepare()


def test_a_changed_or_missing_file_is_named_with_both_hashes(copy: Project) -> None:
    folder = copy.root / "recipes" / "rehearsal" / "model"
    (folder / "config.json").unlink()
    weights = bytearray((folder / WEIGHTS).read_bytes())
    weights[-1] ^= 1
    (folder / WEIGHTS).write_bytes(weights)
    with pytest.raises(OperatorError) as error:
        start_model(copy)
    assert "config.json does not exist" in error.value.message
    assert sha256_file(folder / WEIGHTS) in error.value.message
    assert error.value.fix.startswith("git checkout -- ")


def test_a_lock_without_the_entry_is_an_error(copy: Project) -> None:
    text = copy.lock.read_text(encoding="utf-8")
    begin, end = text.index("[shipped.start-model]"), text.index("# --- Python environments")
    copy.lock.write_text(text[:begin] + text[end:])
    with pytest.raises(OperatorError, match=f"shipped.{ENTRY}"):
        start_model(copy)
    # Recorded runs have the model's hash in a key of its own: the machine's hash does not move.
    for machine in ("rehearsal", "gpu"):
        assert machine_hash(parse_lock(text), machine) == machine_hash(
            read_lock(copy.lock), machine
        )


def write_weights(path: Path, **tensors: np.ndarray) -> Path:
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.astype("<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_the_difference_of_two_files_of_weights(tmp_path: Path) -> None:
    tensor = np.arange(6, dtype=np.float32).reshape(2, 3)
    one = write_weights(tmp_path / "one", a=tensor, b=np.ones(2))
    other = write_weights(tmp_path / "other", b=np.array([1.0, 1.5]), a=tensor)
    found = compare_weights(one, other)
    assert (found.parameters, found.equal, found.greatest) == (8, 7, 0.5)
    assert found.relative == pytest.approx(0.5 / np.sqrt(55 + 2))
    assert compare_weights(one, one).text() == "all 8 parameters have the same bits"
    with pytest.raises(OperatorError, match="expected the tensors"):
        compare_weights(one, write_weights(tmp_path / "third", a=tensor))


def test_the_shipped_model_is_comparable_with_itself() -> None:
    weights = ROOT / "recipes" / "rehearsal" / "model" / WEIGHTS
    found = compare_weights(weights, weights)
    # The 724,032 parameters and the eight expert biases of two sparse layers.
    assert found.parameters == found.equal == 724_032 + 2 * 8


@pytest.mark.rehearsal
def test_a_start_model_of_another_instruction_set_changes_nothing_that_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build with other bits is accepted as such, and the key of a run stays the recorded one."""
    from reprise.rehearsal.model import ModelSettings, ensure_model
    from reprise.rehearsal.toy import write_toy

    project = find_project()
    train = write_toy(tmp_path / "toy", seed=0).train
    short = ModelSettings(steps=10, noisy_steps=4, batch=8, hidden=32, layers=2)
    before = Rehearsal(project, RehearsalOptions(quiet=True)).key()
    plain = ensure_model(
        tmp_path / "a", project.rehearsal_python, train, {"torch": "any"}, None, short
    )
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    other = ensure_model(
        tmp_path / "b", project.rehearsal_python, train, {"torch": "any"}, None, short
    )
    assert os.environ["ATEN_CPU_CAPABILITY"] == "default"
    assert plain.path.name == other.path.name, "the name of a build does not depend on its bits"
    compare_weights(plain.path / WEIGHTS, other.path / WEIGHTS)
    assert Rehearsal(project, RehearsalOptions(quiet=True)).key() == before
    shipped_model(
        ROOT / "recipes" / "rehearsal" / "model",
        read_lock(project.lock).shipped[ENTRY].digests(),
    )
