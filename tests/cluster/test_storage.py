"""Storage under load: real files through the real script, bounds, floors, nothing left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reprise.cluster.doctor import storage
from reprise.cluster.doctor.doctor import Scripts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.doctor.storage import check_storage
from reprise.cluster.site import Paths, Site
from reprise.cluster.ssh import run_here
from reprise.core.findings import State
from reprise.core.project import find_project
from reprise.machines.profile import Floors
from tests.cluster.make import base, context

SCRIPTS = Scripts(find_project().root / "scripts")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_MIB", 96)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("model", "ckpt"):
        (tmp_path / name).mkdir()
    with (tmp_path / "model" / "model-00001-of-00001.safetensors").open("wb") as file:
        for _ in range(80):
            file.write(os.urandom(1 << 20))
    return tmp_path


def checked(site: Site) -> tuple[Marks, dict[str, dict[str, dict[str, float]]]]:
    marks = Marks()
    it = context({"node1": base("node1")}, site=site)
    found = check_storage(
        it, lambda jobs, limit: [run_here(h.name, s, limit) for h, s in jobs], SCRIPTS, marks
    )
    return marks, found


def paths(folder: Path, **more: str) -> Paths:
    named = {"model": str(folder / "model"), "checkpoints": str(folder / "ckpt")} | more
    return Paths(python="/usr/bin/python3", **named)


def test_figures_and_nothing_left(folder: Path) -> None:
    floors = Floors(storage_read=0.0001, storage_write=1000)
    marks, found = checked(Site(paths=paths(folder), floors=floors))
    assert set(found["read"]) == {"checkpoints", "model"} and set(found["write"]) == {"checkpoints"}
    assert all(
        value > 0 for kind in found.values() for by in kind.values() for value in by.values()
    )
    states = {mark.message.partition(":")[0]: mark.state for mark in marks.marks}
    write = next(state for text, state in states.items() if text.startswith("write checkpoints"))
    assert write is State.FAILED
    assert states["read model"] is states["read checkpoints"] is State.PASSED
    assert list((folder / "ckpt").iterdir()) == []
    assert [path.name for path in (folder / "model").iterdir()] == [
        "model-00001-of-00001.safetensors"
    ]


def test_without_a_floor_a_figure_is_unknown(folder: Path) -> None:
    marks, found = checked(Site(paths=paths(folder)))
    assert found["read"]["model"]["node1"] > 0
    assert {mark.state for mark in marks.marks} == {State.UNKNOWN}
    assert all("has no floor" in mark.message for mark in marks.marks)


def test_what_cannot_be_measured_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "small.parquet").write_bytes(b"x")
    site = Site(paths=paths(folder, data=str(folder / "data"), checkpoints=str(folder / "missing")))
    marks, found = checked(site)
    assert set(found["read"]) == {"model"} and found["write"] == {}
    texts = [mark.message for mark in marks.marks if "not measured" in mark.message]
    assert len(texts) == 3
    assert any("read data" in text and "no file of 64 MiB" in text for text in texts)
    assert any("write checkpoints" in text and "No such file" in text for text in texts)
    # 96 MiB times four are not free on any file system of this size.
    monkeypatch.setattr(storage, "_MIB", 1 << 24)
    marks, found = checked(Site(paths=Paths(python="/usr/bin/python3", checkpoints=str(folder))))
    assert found == {"read": {}, "write": {}}
    assert all("MiB are free" in mark.message for mark in marks.marks) and len(marks.marks) == 2


def test_a_file_is_removed_when_time_is_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that hangs: the script's own limit ends it, and its file goes."""
    text = SCRIPTS.text("storage.py")
    assert "os.fsync(file)" in text
    slow = folder / "scripts"
    slow.mkdir()
    (slow / "storage.py").write_text(text.replace("os.fsync(file)", "time.sleep(60)"))
    monkeypatch.setattr(storage, "_SECONDS", -8.0)  # A limit of 30 - 3 * 8 = 6 s.
    marks = Marks()
    site = Site(paths=Paths(python="/usr/bin/python3", checkpoints=str(folder / "ckpt")))
    it = context({"node1": base("node1")}, site=site)
    found = check_storage(
        it, lambda jobs, limit: [run_here(h.name, s, 60) for h, s in jobs], Scripts(slow), marks
    )
    assert found == {"read": {}, "write": {}}
    assert {mark.state for mark in marks.marks} == {State.UNKNOWN}
    assert list((folder / "ckpt").iterdir()) == []


def test_no_named_folder_is_nothing_to_measure() -> None:
    marks, found = checked(Site())
    assert (marks.marks, found) == ([], {})
