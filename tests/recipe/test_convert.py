"""The optional conversion: its limits beforehand, its result afterwards."""

from __future__ import annotations

import json
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from reprise.core.findings import Report
from reprise.recipe.card import card_of
from reprise.recipe.convert import Conversion, check_conversion, check_mcore

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("model", "pp", "ep", "failed", "part"),
    [
        ("qwen3-8b", 1, 1, [], "--nproc_per_node=1 "),
        ("qwen3-8b", 2, 1, ["recipe-convert-processes"], ""),
        ("qwen3-30b-a3b", 1, 8, [], "--ep_size 8 --use_cpu_initialization"),
        ("qwen3-30b-a3b", 1, 7, ["recipe-convert-experts"], ""),
        ("hy3", 1, 1, ["recipe-convert-family"], ""),
    ],
)
def test_limits(tmp_path: Path, model: str, pp: int, ep: int, failed: list[str], part: str) -> None:
    shape = card_of(ROOT / "recipes", model).model_shape()
    assert shape is not None
    (tmp_path / "config.json").write_text("{}")
    report = Report("x")
    check_conversion(report, Conversion(tmp_path, tmp_path / "new", pp, ep), shape)
    assert [finding.rule for finding in report.errors()] == failed
    assert part in report.data["job"]


def test_an_output_that_is_not_empty(tmp_path: Path) -> None:
    shape = card_of(ROOT / "recipes", "qwen3-8b").model_shape()
    assert shape is not None
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "old").mkdir()
    report = Report("x")
    check_conversion(report, Conversion(tmp_path, tmp_path / "old"), shape)
    assert report.exit_code == 0
    (tmp_path / "old" / "common.pt").touch()
    report = Report("x")
    check_conversion(report, Conversion(tmp_path, tmp_path / "old"), shape)
    assert [finding.rule for finding in report.errors()] == ["recipe-convert-output"]


@dataclass
class StorageInfo:
    """A piece of a shard, with the attributes that torch's .metadata has for it."""

    relative_path: str
    offset: int
    length: int


@dataclass
class Metadata:
    storage_data: dict[str, StorageInfo]


def whole(folder: Path) -> None:
    folder.mkdir()
    pieces = {}
    for rank in range(2):
        (folder / f"__{rank}_0.distcp").write_bytes(b"weights")
        pieces[str(rank)] = StorageInfo(f"__{rank}_0.distcp", 3, 4)
    with zipfile.ZipFile(folder / "common.pt", "w") as archive:
        archive.writestr("common/data.pkl", pickle.dumps({}))
    (folder / ".metadata").write_bytes(pickle.dumps(Metadata(pieces)))
    (folder / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist"}))


def test_a_whole_result(tmp_path: Path) -> None:
    whole(tmp_path / "m")
    report = Report("x")
    check_mcore(report, tmp_path / "m")
    assert report.exit_code == 0
    assert (report.data["shards"], report.data["bytes"]) == (2, 14)


@pytest.mark.parametrize(
    "name", ["common.pt", ".metadata", "metadata.json", "__1_0.distcp", "__0_0.distcp"]
)
@pytest.mark.parametrize("damage", ["missing", "empty", "cut"])
def test_a_result_that_is_not_whole(tmp_path: Path, name: str, damage: str) -> None:
    whole(tmp_path / "m")
    path = tmp_path / "m" / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[:-3] if damage == "cut" else b"")
    report = Report("x")
    check_mcore(report, tmp_path / "m")
    assert report.exit_code == 1
    assert any(finding.where.endswith(name) for finding in report.errors())


def test_another_format(tmp_path: Path) -> None:
    whole(tmp_path / "m")
    (tmp_path / "m" / "metadata.json").write_text('{"sharded_backend": "zarr"}')
    report = Report("x")
    check_mcore(report, tmp_path / "m")
    (fault,) = report.errors()
    assert "'zarr'" in fault.message


def test_a_source_is_looked_at_where_it_is_seen(tmp_path: Path) -> None:
    model = card_of(ROOT / "recipes", "qwen3-8b").model_shape()
    assert model is not None
    for source, expected in ((tmp_path, "problem"), (tmp_path / "elsewhere", "ok")):
        report = Report("recipe convert")
        check_conversion(report, Conversion(source, tmp_path / "new", 1, 1), model)
        assert report.verdict.value == expected
        assert [f.rule for f in report.findings] == ["recipe-convert-source"]
