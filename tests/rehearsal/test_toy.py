"""The toy data: right, split without a leak, the same bytes for the same seed."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from reprise.core.errors import OperatorError
from reprise.rehearsal.toy import DATA_SOURCE, PROBLEMS, write_toy


def contents(path):
    return [row["prompt"][0]["content"] for row in pq.read_table(path).to_pylist()]


def test_same_seed_gives_same_bytes_and_another_seed_another_split(tmp_path):
    first = write_toy(tmp_path / "a", seed=3)
    again = write_toy(tmp_path / "b", seed=3)
    other = write_toy(tmp_path / "c", seed=4)
    assert first.train.read_bytes() == again.train.read_bytes()
    assert first.val.read_bytes() == again.val.read_bytes()
    assert (first.train_sha256, first.val_sha256) == (again.train_sha256, again.val_sha256)
    assert set(contents(first.val)) != set(contents(other.val))


def test_no_problem_is_in_both_files_not_even_with_its_terms_swapped(tmp_path):
    toy = write_toy(tmp_path, seed=0)

    def terms(path):
        return [frozenset(text.removesuffix("=?").split("+")) for text in contents(path)]

    train, val = terms(toy.train), terms(toy.val)
    assert not set(train) & set(val)
    assert len(set(train)) == len(train) == toy.train_rows
    assert len(set(val)) == len(val) == toy.val_rows
    assert len(train) + len(val) == len(PROBLEMS)


def test_every_row_has_the_five_fields_and_the_right_answer(tmp_path):
    toy = write_toy(tmp_path, seed=0)
    for path, split in ((toy.train, "train"), (toy.val, "test")):
        for index, row in enumerate(pq.read_table(path).to_pylist()):
            (message,) = row["prompt"]
            first, second = message["content"].removesuffix("=?").split("+")
            assert row == {
                "data_source": DATA_SOURCE,
                "prompt": [{"role": "user", "content": f"{first}+{second}=?"}],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": str(int(first) + int(second))},
                "extra_info": {"split": split, "index": index},
            }


def test_the_footer_carries_no_metadata_of_any_library(tmp_path):
    toy = write_toy(tmp_path, seed=0)
    assert pq.ParquetFile(toy.train).metadata.metadata is None


@pytest.mark.parametrize("rows", [0, -1, len(PROBLEMS), len(PROBLEMS) + 1])
def test_a_split_with_an_empty_side_is_refused(tmp_path, rows):
    with pytest.raises(OperatorError, match="validation problems"):
        write_toy(tmp_path, seed=0, val_rows=rows)
    assert list(tmp_path.iterdir()) == []
