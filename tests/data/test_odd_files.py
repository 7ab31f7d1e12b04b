"""Data files that are not what they seem; none keeps the check waiting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reprise.core.errors import OperatorError
from reprise.core.findings import Verdict
from reprise.data.check.check import Inputs, check_files
from reprise.data.check.router import find_router
from reprise.data.read.reading import open_source

from .inputs import row, verl_tree, write_jsonl


@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.parquet"])
def test_a_pipe_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(OperatorError, match="expected a regular file"):
        open_source(tmp_path / name)


def test_a_value_of_another_type_is_named_with_its_own_line(tmp_path: Path) -> None:
    """Beyond 10 MiB, with rows of the first type before it in the same chunk."""
    rows = [row("x" * 50_000, "1", extra_info={"index": i}) for i in range(240)]
    rows[235] = row("x", "1", extra_info={"index": "a"})
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    report, _, _ = check_files("c", [path], [], Inputs(find_router([verl_tree(tmp_path / "v")])))
    assert report.verdict is Verdict.PROBLEM
    (found,) = [item for item in report.errors() if item.rule == "data-type"]
    assert found.where == f"{path}:236" and "(line 236: " in found.message
    assert "--drop extra_info" in found.fix
