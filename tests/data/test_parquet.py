"""The writer: byte-stable, free of foreign metadata, whole or not at all."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reprise.core.errors import OperatorError
from reprise.data.read import parquet


def rows(count: int) -> list[dict]:
    return [
        {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": f"{i}+1?"}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(i + 1)},
            "extra_info": {"split": "train", "index": i},
        }
        for i in range(count)
    ]


def batches(count: int, size: int) -> list[pa.RecordBatch]:
    table = pa.Table.from_pylist(rows(count), schema=parquet.row_schema())
    return table.to_batches(max_chunksize=size)


def test_rows_come_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    assert parquet.write_rows(path, rows(50)) == 50
    assert pq.read_table(path).to_pylist() == rows(50)


def test_bytes_do_not_depend_on_how_the_rows_arrive(tmp_path: Path) -> None:
    count = parquet.ROW_GROUP_ROWS + 7
    for name, size in (("a", 1000), ("b", 17), ("c", count)):
        written = parquet.write_batches(tmp_path / name, parquet.row_schema(), batches(count, size))
        assert written == count
    assert len({(tmp_path / name).read_bytes() for name in "abc"}) == 1
    assert pq.ParquetFile(tmp_path / "a").metadata.num_row_groups == 2


def test_footer_holds_no_foreign_metadata(tmp_path: Path) -> None:
    schema = parquet.row_schema().with_metadata({"huggingface": "{}", "pandas": "{}"})
    parquet.write_rows(tmp_path / "a.parquet", rows(3), schema)
    assert parquet.footer_metadata(parquet.open_parquet(tmp_path / "a.parquet")) == {}


def test_a_value_that_does_not_fit_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_rows(path, rows(2))
    before = path.read_bytes()
    bad = rows(3)
    bad[2]["reward_model"]["ground_truth"] = 5
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
        parquet.write_rows(path, bad)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("content", [b"", b"PAR1 cut", b"{}\n"])
def test_a_file_that_is_no_parquet_is_a_finding(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(OperatorError) as caught:
        parquet.open_parquet(path)
    assert str(path) in caught.value.where


def test_a_missing_file_is_a_finding(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="no such file"):
        parquet.open_parquet(tmp_path / "none.parquet")
