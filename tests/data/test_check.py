"""`data check` on the faults that users meet, in both file formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reprise.core.errors import CannotTell
from reprise.core.findings import Finding, Report, Severity, State, Verdict
from reprise.data.check.check import Inputs, check_files
from reprise.data.check.router import find_router
from reprise.data.check.settings import Settings, read_overrides
from reprise.data.read.rows import row_faults

from .inputs import repeated_problems, row, verl_tree, write_jsonl, write_parquet


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return find_router([verl_tree(tmp_path_factory.mktemp("tree"))])


def check(router: Any, train: list[Path], val: list[Path] | None = None, **values: Any) -> Report:
    inputs = Inputs(router, Settings(**values))
    return check_files("data check", train, val or [], inputs)[0]


def found(report: Report, rule: str, severity: Severity | None = None) -> list[Finding]:
    return [
        item for item in report.findings if item.rule == rule and severity in (None, item.severity)
    ]


def write(kind: str, folder: Path, rows: list[dict[str, Any]]) -> Path:
    if kind == "jsonl":
        return write_jsonl(folder / "rows.jsonl", rows)
    return write_parquet(folder / "rows.parquet", rows)


BOTH = pytest.mark.parametrize("kind", ["jsonl", "parquet"])


@BOTH
def test_sound_rows_pass_every_rule(kind: str, tmp_path: Path, router: Any) -> None:
    rows = [row(f"{i}+1?", str(i + 1), extra_info={"index": i}) for i in range(300)]
    report = check(router, [write(kind, tmp_path, rows)])
    assert report.verdict is Verdict.OK
    assert report.findings == []
    assert {check.state for check in report.checks} == {State.PASSED}


@BOTH
def test_repeats_and_a_conflicting_answer_are_told(kind: str, tmp_path: Path, router: Any) -> None:
    report = check(router, [write(kind, tmp_path, repeated_problems(100))], train_batch_size=100)
    facts = report.data["files"][0]
    assert (facts["rows"], facts["unique_prompts"], facts["unique_pairs"]) == (300, 3, 4)
    assert facts["max_repeat"] == 100
    assert (facts["steps_per_epoch"], facts["steps_per_epoch_unique"]) == (3, 0)
    (conflict,) = found(report, "data-conflict", Severity.WARNING)
    assert "'42' (row 2)" in conflict.message and "'41' (row 299)" in conflict.message
    assert conflict.where.endswith("299")
    (repeats,) = found(report, "data-repeats")
    assert "--unique" in repeats.fix


@BOTH
def test_unknown_sources_are_named_with_rows_and_the_nearest_name(
    kind: str, tmp_path: Path, router: Any
) -> None:
    values = ["", "/data/gsm8k", "aime_2025_zh", "math_dapo", "Math_DAPO"]
    path = write(kind, tmp_path, [row(f"q{i}", source=v) for i, v in enumerate(values)])
    errors = found(check(router, [path]), "data-source", Severity.ERROR)
    rows = [item.where.rsplit(":", 1)[1].removeprefix("row ") for item in errors]
    assert rows == ["1", "2", "5"]
    assert "openai/gsm8k" in errors[1].fix
    assert "'math_dapo'" in errors[2].fix
    own = check(router, [path], custom_reward="reward.py")
    assert own.verdict is Verdict.OK
    assert len(found(own, "data-source", Severity.NOTE)) == 3


def test_without_verls_source_the_names_are_unknown(tmp_path: Path) -> None:
    with pytest.raises(CannotTell) as caught:
        find_router([tmp_path])
    report = check(caught.value, [write("jsonl", tmp_path, [row()])])
    assert report.verdict is Verdict.UNKNOWN
    assert report.exit_code == 2


@BOTH
def test_raw_questions_are_refused_with_the_conversion(
    kind: str, tmp_path: Path, router: Any
) -> None:
    rows = [{"question": "16-3-4, times 2?", "answer": "9*2=18\n#### 18"}]
    path = write(kind, tmp_path, rows)
    errors = found(check(router, [path]), "data-columns", Severity.ERROR)
    told = " ".join(item.message for item in errors)
    assert all(name in told for name in ("prompt", "reward_model.ground_truth", "data_source"))
    assert f"reprise data convert {path} OUT.parquet --question question --answer answer" in (
        errors[0].fix
    )


def test_prompts_of_the_wrong_form(tmp_path: Path, router: Any) -> None:
    messages = [{"role": "user", "content": "1+2=?"}]
    rows = [
        row() | {"prompt": "1+1=?"},
        row() | {"prompt": json.dumps(messages)},
        row([{"role": "human", "content": "1+3=?"}]),
        row([{"role": "system", "content": "be brief"}, *messages]),
        row([]),
        row() | {"prompt": messages[0]},
    ]
    path = write("jsonl", tmp_path, rows)
    report = check(router, [path])
    by_line = {int(f.where.rsplit(":", 1)[1]): f for f in report.errors() if f.rule != "data-type"}
    assert sorted(by_line) == [1, 2, 3, 5, 6]
    assert "wraps" in by_line[1].fix
    assert "decodes" in by_line[2].fix
    assert "'human'" in by_line[3].message and "--role human=user" in by_line[3].fix
    assert "no message" in by_line[5].message


def test_numpy_arrays_of_messages_are_lists() -> None:
    messages = np.array([{"role": "user", "content": "q"}], dtype=object)
    assert list(row_faults(row(messages))) == []
    assert list(row_faults(row(np.array([], dtype=object)))) != []


def test_answers_of_mixed_types(tmp_path: Path, router: Any) -> None:
    answers = ["5", 42, 3.0, "\\frac{1}{2}", None, ["1", "2"], True, " 7 ", ""]
    path = write("jsonl", tmp_path, [row(f"q{i}", a) for i, a in enumerate(answers)])
    report = check(router, [path])
    rows = {int(f.where.rsplit(":", 1)[1]) for f in found(report, "data-ground-truth")}
    assert rows == {2, 3, 5, 6, 7, 8, 9}
    (clash,) = found(report, "data-type", Severity.ERROR)
    assert "int (row 2)" in clash.message and "string (row 1)" in clash.message


def test_feature_metadata_of_a_newer_library_is_warned_of(tmp_path: Path, router: Any) -> None:
    features = {"prompt": {"feature": {"role": {"_type": "Value"}}, "_type": "List"}}
    meta = {"huggingface": json.dumps({"info": {"features": features}})}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([row()]).replace_schema_metadata(meta), path)
    (warning,) = found(check(router, [path]), "data-footer", Severity.WARNING)
    assert "datasets >= 4" in warning.message
    inputs = Inputs(router, image_datasets="3.6.0")
    (warning,) = found(check_files("c", [path], [], inputs)[0], "data-footer")
    assert "3.6.0" in warning.message


@pytest.mark.parametrize(("count", "verdict"), [(100, Verdict.PROBLEM), (300, Verdict.OK)])
def test_rows_against_the_batch(count: int, verdict: Verdict, tmp_path: Path, router: Any) -> None:
    path = write("parquet", tmp_path, [row(f"q{i}") for i in range(count)])
    report = check(router, [path], train_batch_size=128, epochs=1, save_freq=20)
    assert report.verdict is verdict
    told = " ".join(f.message for f in found(report, "data-batch"))
    if count == 100:
        assert "0 steps per epoch" in told
        assert "data.train_batch_size=64" in found(report, "data-batch")[0].fix
    else:
        assert "2 steps/epoch" in told and "44 rows unused" in told
        assert "no checkpoint" in told


@pytest.mark.parametrize(("rows", "expected"), [(127, 0), (128, 1), (129, 1), (256, 2)])
def test_the_edge_of_a_batch(rows: int, expected: int, tmp_path: Path, router: Any) -> None:
    path = write("parquet", tmp_path, [row(f"q{i}") for i in range(rows)])
    report = check(router, [path], train_batch_size=128)
    assert report.data["files"][0]["steps_per_epoch"] == expected
    assert (report.verdict is Verdict.PROBLEM) == (expected == 0)


@pytest.mark.parametrize(
    ("copies", "n", "severity", "words"),
    [
        (32, 1, Severity.NOTE, "32 samples a problem"),
        (32, 32, Severity.WARNING, "validation is 32x too large"),
        (1, 1, Severity.WARNING, "1 samples a problem"),
        (1, 32, Severity.NOTE, "32 samples a problem"),
    ],
)
def test_samples_a_problem(
    copies: int, n: int, severity: Severity, words: str, tmp_path: Path, router: Any
) -> None:
    rows = [row(f"AIME {p}", str(100 + p)) for _ in range(copies) for p in range(2)]
    path = write("parquet", tmp_path, rows)
    report = check(router, [], [path], val_samples=n)
    (finding,) = found(report, "data-samples")
    assert finding.severity is severity
    assert words in finding.message
    assert report.verdict is Verdict.OK


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"truncation": "left", "filter_overlong": False}, "cuts the head"),
        ({"truncation": "error", "filter_overlong": False}, "does not read it"),
        ({"truncation": "left", "filter_overlong": True}, "4 rows are left"),
    ],
)
def test_overlong_prompts(policy: dict[str, Any], words: str, tmp_path: Path, router: Any) -> None:
    rows = [row("Answer: X. " + "word " * (3000 if i == 2 else 10) + str(i)) for i in range(5)]
    path = write("parquet", tmp_path, rows)
    report = check(router, [path], max_prompt_length=2048, **policy)
    (finding,) = found(report, "data-length")
    assert "1 of 5 prompts" in finding.message and "row 3" in finding.message
    assert "estimate: characters / 3" in finding.message
    assert words in finding.message


@BOTH
def test_structs_that_readers_fill_with_none(kind: str, tmp_path: Path, router: Any) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {"xs": ["u", "v"]}}}
    rows = [
        row(extra_info={"b": 1}),
        row(
            [
                {"role": "user", "content": "q1"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "content": "ok"},
            ],
            extra_info={"a": "z"},
        ),
        {key: value for key, value in row("q2").items() if key != "extra_info"},
    ]
    report = check(router, [write(kind, tmp_path, rows)])
    (warning,) = found(report, "data-null-fill", Severity.WARNING)
    assert "prompt[].tool_calls (4 messages)" in warning.message
    (note,) = found(report, "data-null-fill", Severity.NOTE)
    assert "extra_info.a" in note.message and "extra_info.b" in note.message
    assert report.verdict is Verdict.OK


def test_files_whose_columns_differ_in_type(tmp_path: Path, router: Any) -> None:
    first = write_parquet(tmp_path / "a.parquet", [row(extra_info={"index": 1})])
    second = write_parquet(tmp_path / "b.parquet", [row("q", extra_info={"index": "x"})])
    (error,) = found(check(router, [first, second]), "data-schema", Severity.ERROR)
    assert "extra_info" in error.message and "a.parquet" in error.message


@BOTH
def test_validation_prompts_in_the_training_set(kind: str, tmp_path: Path, router: Any) -> None:
    train = write(kind, tmp_path, [row(f"q{i}") for i in range(10)])
    # The same problem but for blanks and the Unicode form counts as the same problem.
    val = write_parquet(tmp_path / "val.parquet", [row(" q3\r\n"), row("q99")])
    (error,) = found(check(router, [train], [val]), "data-leak", Severity.ERROR)
    assert "1 prompts" in error.message and "row 4" in error.message


def test_lines_that_are_no_objects_are_named(tmp_path: Path, router: Any) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(row())}\n\n[1]\n{{cut\n{json.dumps(row('q'))}\n")
    errors = found(check(router, [path]), "data-file", Severity.ERROR)
    assert [item.where for item in errors] == [f"{path}:3", f"{path}:4"]


def test_all_files_are_checked_although_one_is_missing(tmp_path: Path, router: Any) -> None:
    good = write("parquet", tmp_path, [row()])
    report = check(router, [tmp_path / "none.parquet", good])
    assert found(report, "data-file", Severity.ERROR)
    assert [item["file"] for item in report.data["files"]] == [str(good)]


def test_a_damaged_page_is_a_finding(tmp_path: Path, router: Any) -> None:
    rows = [row(f"{i} is a number with a long text around it " * 3) for i in range(2000)]
    path = write("parquet", tmp_path, rows)
    data = bytearray(path.read_bytes())
    for place in range(200, 1200):
        data[place] ^= 0x5A
    path.write_bytes(data)
    report = check(router, [path])
    assert report.verdict is Verdict.PROBLEM


def test_overrides_are_read_as_hydra_reads_them() -> None:
    lines = ["data.train_batch_size=128", "# a comment", "", "+data.truncation=left",
             "data.filter_overlong_prompts=False", "data.val_files=val.parquet"]  # fmt: skip
    settings = Settings.from_values(read_overrides(lines))
    assert settings.train_batch_size == 128
    assert settings.truncation == "left"
    assert settings.filter_overlong is False
    assert settings.val_files == ("val.parquet",)
