"""Odd rows: never a traceback, and what passes is taken by verl's own data set class."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprise.core.errors import OperatorError
from reprise.core.findings import Verdict
from reprise.data.check.check import Inputs, check_files
from reprise.data.check.describe import describe
from reprise.data.check.router import find_router
from reprise.data.check.settings import Settings
from reprise.data.convert.convert import Choices, convert
from reprise.data.read.reading import open_source
from reprise.data.read.rows import row_faults
from reprise.data.read.scan import scan_file
from reprise.data.read.shape import Shape

from .inputs import row, verl_tree
from .odd_rows import absurd, json_values, rows

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-rehearsal" / "bin" / "python"
relaxed = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return find_router([verl_tree(tmp_path_factory.mktemp("tree"))])


@given(odd=rows(absurd, 2) | st.dictionaries(st.text(max_size=3), absurd))
@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=300)
def test_no_row_makes_the_rules_fail(odd: dict[str, Any]) -> None:
    for fault in row_faults(odd):
        assert fault.message
        orjson.dumps([fault.message, fault.fix])
    shape = Shape()
    shape.observe(odd, 1)
    if not list(shape.clashes("row")):
        kind = shape.arrow_type()
        assert pa.array([odd], kind).type == kind


def _write(path: Path, found: list[dict[str, Any]]) -> bool:
    """Write as the ending says; False where the format cannot hold the rows at all."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(item) + "\n" for item in found), errors="surrogatepass")
        return True
    try:
        pq.write_table(pa.Table.from_pylist(found), path)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return False
    return True


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@given(found=st.lists(rows(json_values, 6), min_size=1, max_size=6))
@relaxed
def test_no_file_makes_the_check_fail(
    ending: str, found: list[dict[str, Any]], tmp_path: Path, router: Any
) -> None:
    path = tmp_path / f"a.{ending}"
    if not _write(path, found):
        return
    chosen = Settings(train_batch_size=2, val_samples=2, max_prompt_length=4)
    report, train, _ = check_files("c", [path], [], Inputs(router, chosen))
    orjson.dumps(report.to_json())
    for item in train:
        orjson.dumps(describe(item, chosen, 2))
    for target in (tmp_path / "out.parquet", tmp_path / "out.jsonl"):
        told = convert("c", path, target, Choices(force=True, drop_rejected=True))
        orjson.dumps(told.to_json())


@given(
    found=st.lists(rows(st.text(max_size=3) | st.none() | st.just([]), 5), min_size=1, max_size=8)
)
@relaxed
def test_columns_and_rows_give_the_same_faults(found: list[dict[str, Any]], tmp_path: Path) -> None:
    """The columnar pass only chooses which rows to look at: no fault may escape it."""
    path = tmp_path / "a.parquet"
    if not _write(path, found):
        return
    read = pq.read_table(path).to_pylist()
    names = pq.read_schema(path).names
    wanted: dict[Any, list[int]] = {}
    for number, item in enumerate(read, 1):
        for fault in row_faults({name: item[name] for name in names}):
            wanted.setdefault(fault, []).append(number)
    scanned = scan_file(open_source(path))
    assert {fault: rows.shown for fault, rows in scanned.faults.items()} == wanted


@given(found=st.lists(rows(json_values, 30), min_size=1, max_size=4))
@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=40)
def test_conversion_is_stable_and_loses_nothing(
    found: list[dict[str, Any]], tmp_path: Path
) -> None:
    source = tmp_path / "a.jsonl"
    _write(source, found)
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    reports = [convert("c", source, path, Choices(force=True)) for path in (first, second)]
    if reports[0].verdict is not Verdict.OK:
        return
    assert first.read_bytes() == second.read_bytes()
    for before, line in zip(found, first.read_bytes().splitlines(), strict=True):
        after = json.loads(line)
        assert (
            after["reward_model"]["ground_truth"] == before["reward_model"]["ground_truth"].strip()
        )
        if before.get("extra_info"):
            assert after["extra_info"] == before["extra_info"]


@pytest.mark.parametrize("damage", range(6))
def test_random_damage_to_a_file_is_a_finding(damage: int, tmp_path: Path, router: Any) -> None:
    path = tmp_path / "a.parquet"
    found = [
        {"data_source": "math_dapo", "prompt": [{"role": "user", "content": f"{i}?" * 40}],
         "reward_model": {"style": "rule", "ground_truth": str(i)}}
        for i in range(400)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(found), path)
    data = bytearray(path.read_bytes())
    size = len(data)
    if damage < 3:
        path.write_bytes(data[: size * (damage + 1) // 4])
    else:
        start = size * (damage - 2) // 5
        data[start : start + 300] = os.urandom(300)
        path.write_bytes(data)
    try:
        report, _, _ = check_files("c", [path], [], Inputs(router))
    except OperatorError as error:  # pragma: no cover
        pytest.fail(f"an error left the check: {error}")
    orjson.dumps(report.to_json())


def _examples(folder: Path, count: int) -> list[tuple[Path, int]]:
    """Files of random rows, half of them with nothing odd but what JSON and parquet may hold."""
    made: list[tuple[Path, int]] = []

    @given(
        found=st.lists(rows(json_values, 40), min_size=1, max_size=5),
        ending=st.sampled_from(["jsonl", "parquet"]),
    )
    @settings(
        deadline=None,
        suppress_health_check=list(HealthCheck),
        max_examples=count,
        database=None,
        derandomize=True,
    )
    def make(found: list[dict[str, Any]], ending: str) -> None:
        path = folder / f"{len(made):04d}.{ending}"
        if _write(path, found):
            made.append((path, len(found)))

    make()
    return made


@pytest.mark.rehearsal
def test_what_passes_is_taken_by_verls_data_set(tmp_path: Path, router: Any) -> None:
    passed = []
    for path, count in _examples(tmp_path, 400):
        report, _, _ = check_files("c", [path], [], Inputs(router))
        if report.verdict is Verdict.OK:
            passed.append((path, count))
    assert len(passed) >= 40, "too few files pass for the test to mean anything"
    chosen = passed[:: max(1, len(passed) // 60)]
    refused = tmp_path / "refused.jsonl"  # the control: what fails here must fail there
    _write(refused, [row("q1"), row() | {"prompt": "a plain text"}])
    assert check_files("c", [refused], [], Inputs(router))[0].verdict is Verdict.PROBLEM
    lines = "".join(f"{path} {count}\n" for path, count in [*chosen, (refused, 2)])
    script = Path(__file__).with_name("accept_script.py")
    answer = subprocess.run(
        [str(PYTHON), str(script), str(tmp_path / "cache")],
        input=lines,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=os.environ | {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"},
    )
    told = [json.loads(line) for line in answer.stdout.splitlines()]
    assert len(told) == len(chosen) + 1, answer.stderr[-2000:]
    assert [item["file"] for item in told if not item["ok"]] == [str(refused)], told


@pytest.mark.parametrize(
    "odd",
    [[], [None], {"a": 1}, b"\xff\xfe", datetime.date(2026, 1, 1), datetime.timedelta(days=1)],
    ids=repr,
)
@pytest.mark.parametrize("column", ["data_source", "index", "ground_truth"])
def test_any_type_in_a_column_that_is_read_is_a_finding(
    odd: object, column: str, tmp_path: Path, router: Any
) -> None:
    row: dict[str, Any] = {
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": "q"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "1"},
        "extra_info": {"index": 1},
    }
    holder = {"data_source": row, "index": row["extra_info"], "ground_truth": row["reward_model"]}
    holder[column][column] = odd
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([row]), path)
    report, _, _ = check_files("c", [path], [], Inputs(router))
    orjson.dumps(report.to_json())
    if column != "index":
        assert any(column in finding.message for finding in report.errors()), report.findings
