"""The optional conversion: its limits beforehand, its result afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reprise.findings import Report
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
    report = Report("x")
    check_conversion(report, Conversion(tmp_path, tmp_path / "new", pp, ep), shape)
    assert [finding.rule for finding in report.errors()] == failed
    assert part in report.data["job"]


def test_an_output_that_is_not_empty(tmp_path: Path) -> None:
    shape = card_of(ROOT / "recipes", "qwen3-8b").model_shape()
    assert shape is not None
    (tmp_path / "old").mkdir()
    report = Report("x")
    check_conversion(report, Conversion(tmp_path, tmp_path / "old"), shape)
    assert report.exit_code == 0
    (tmp_path / "old" / "common.pt").touch()
    report = Report("x")
    check_conversion(report, Conversion(tmp_path, tmp_path / "old"), shape)
    assert [finding.rule for finding in report.errors()] == ["recipe-convert-output"]


def whole(folder: Path) -> None:
    folder.mkdir()
    for rank in range(2):
        (folder / f"__{rank}_0.distcp").write_bytes(b"weights")
    (folder / "common.pt").write_bytes(b"pt")
    (folder / ".metadata").write_bytes(b"\x80x __0_0.distcp y __1_0.distcp")
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
@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_a_result_that_is_not_whole(tmp_path: Path, name: str, damage: str) -> None:
    whole(tmp_path / "m")
    path = tmp_path / "m" / name
    path.unlink()
    if damage == "empty":
        path.touch()
    report = Report("x")
    check_mcore(report, tmp_path / "m")
    assert report.exit_code == 1
    assert any(finding.where.endswith(name) for finding in report.errors())


def test_another_format(tmp_path: Path) -> None:
    whole(tmp_path / "m")
    (tmp_path / "m" / "metadata.json").write_text('{"sharded_backend": "zarr"}')
    report = Report("x")
    check_mcore(report, tmp_path / "m")
    assert [finding.rule for finding in report.errors()] == ["recipe-convert-format"]
