"""Conversion of users' own files: what is changed, what is refused, and that nothing is lost."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reprise.core.errors import OperatorError
from reprise.core.findings import Report, Severity, Verdict
from reprise.data.check.check import Inputs, check_files
from reprise.data.check.router import find_router
from reprise.data.convert.answers import NoAnswer, extract_answer, normalise_answer
from reprise.data.convert.convert import Choices, convert
from reprise.data.convert.mapping import ColumnMap, read_mapping

from .inputs import repeated_problems, row, verl_tree, write_jsonl, write_parquet

SUMS = [
    {"question": "16-3-4, times 2?", "answer": "9*2=18\n#### 18"},
    {"question": "2 and half of it?", "answer": "2+1=3\n#### 3"},
    {"question": "12 boxes of 90?", "answer": "12*90=1080\n#### 1,080"},
]
QA = ColumnMap().but(question="question", answer="answer", data_source="openai/gsm8k")


def run(source: Path, target: Path, mapping: ColumnMap | None = None, **choices: Any) -> Report:
    return convert("data convert", source, target, Choices(mapping or ColumnMap(), **choices))


def read(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def sources(folder: Path, rows: list[dict[str, Any]]) -> list[Path]:
    """The same rows in every input format."""
    array = folder / "rows.json"
    array.write_text(json.dumps(rows))
    table = folder / "rows.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return [
        write_jsonl(folder / "rows.jsonl", rows),
        array,
        table,
        write_parquet(folder / "rows.parquet", rows),
    ]


def test_questions_and_answers_of_every_format_give_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for place, source in enumerate(sources(tmp_path, SUMS)):
        target = tmp_path / f"out{place}.parquet"
        report = run(source, target, QA)
        assert report.verdict is Verdict.OK, report.findings
        written.append(target.read_bytes())
    assert len(set(written)) == 1
    rows = read(tmp_path / "out0.parquet")
    assert [item["reward_model"]["ground_truth"] for item in rows] == ["18", "3", "1080"]
    assert rows[2]["extra_info"] == {"split": "train", "index": 2}
    assert rows[0]["prompt"] == [{"role": "user", "content": "16-3-4, times 2?"}]
    assert {item["data_source"] for item in rows} == {"openai/gsm8k"}


def test_what_is_converted_passes_the_check(tmp_path: Path) -> None:
    run(write_jsonl(tmp_path / "in.jsonl", SUMS), tmp_path / "out.parquet", QA)
    router = find_router([verl_tree(tmp_path / "tree")])
    report, _, _ = check_files("check", [tmp_path / "out.parquet"], [], Inputs(router))
    assert report.verdict is Verdict.OK
    assert report.findings == []
    assert pq.ParquetFile(tmp_path / "out.parquet").metadata.metadata is None


def test_answers_become_strings_and_what_is_no_answer_is_rejected(tmp_path: Path) -> None:
    answers = ["5", 42, 3.0, "\\frac{1}{2}", None, ["1", "2"], True, " 7 ", ""]
    source = write_jsonl(tmp_path / "in.jsonl", [row(f"q{i}", a) for i, a in enumerate(answers)])
    target = tmp_path / "out.parquet"
    report = run(source, target)
    rejected = {f.where for f in report.errors()}
    assert rejected == {f"{source}:{line}" for line in (5, 6, 7, 9)}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl"]
    report = run(source, target, drop_rejected=True)
    assert report.verdict is Verdict.OK
    truths = [item["reward_model"]["ground_truth"] for item in read(target)]
    assert truths == ["5", "42", "3", "\\frac{1}{2}", "7"]
    assert any("without a fraction" in f.message and "row 3" in f.message for f in report.findings)
    assert pq.read_schema(target).field("reward_model").type.field("ground_truth").type == (
        pa.string()
    )


def test_prompts_are_wrapped_decoded_and_their_roles_renamed(tmp_path: Path) -> None:
    message = {"role": "user", "content": "1+2=?"}
    rows = [
        row() | {"prompt": "1+1=?"},
        row() | {"prompt": json.dumps([message])},
        row([{"role": "human", "content": "1+3=?"}]),
        row() | {"prompt": message},
        row([{"from": "human", "value": "1+5=?"}]),
    ]
    source = write_jsonl(tmp_path / "in.jsonl", rows)
    refused = run(source, tmp_path / "out.parquet")
    assert refused.verdict is Verdict.PROBLEM
    assert any("'human'" in item.message for item in refused.errors())
    report = run(source, tmp_path / "out.parquet", ColumnMap().but(roles={"human": "user"}))
    assert report.verdict is Verdict.OK, report.findings
    contents = ["1+1=?", "1+2=?", "1+3=?", "1+2=?", "1+5=?"]
    assert [item["prompt"] for item in read(tmp_path / "out.parquet")] == [
        [{"role": "user", "content": text}] for text in contents
    ]
    assert report.data["changes"]["role human renamed to user"] == 2


def test_messages_with_different_keys_are_refused_for_parquet(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {"xs": ["u", "v"]}}}
    rows = [
        row("q0", extra_info={"b": 1}),
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
    source = write_jsonl(tmp_path / "in.jsonl", rows)
    report = run(source, tmp_path / "out.parquet")
    (error,) = report.errors()
    assert "prompt[].tool_calls (first in row 2, absent 4 times)" in error.message
    assert "out.jsonl" in error.fix
    assert not (tmp_path / "out.parquet").exists()
    report = run(source, tmp_path / "out.jsonl")
    assert report.verdict is Verdict.OK
    back = [
        json.loads(line)
        for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [item["prompt"] for item in back] == [item["prompt"] for item in rows]
    notes = [f for f in report.findings if f.rule == "data-null-fill"]
    assert ["extra_info.a" in item.message for item in notes].count(True) == 1


def test_nested_columns_pass_through_parquet_unchanged(tmp_path: Path) -> None:
    extra = pa.struct(
        [
            ("index", pa.int32()),
            ("when", pa.timestamp("us", "UTC")),
            ("tree", pa.list_(pa.struct([("a", pa.list_(pa.float32())), ("b", pa.binary())]))),
        ]
    )
    values = [
        {"index": 7, "when": datetime(2026, 1, 2, tzinfo=UTC), "tree": [{"a": [1.5], "b": b"\0"}]},
        None,
    ]
    table = pa.Table.from_pylist([row("q0"), row("q1")]).drop_columns(["extra_info"])
    table = table.append_column("extra_info", pa.array(values, extra))
    table = table.append_column("agent_name", pa.array(["tool", None]))
    pq.write_table(table, tmp_path / "in.parquet")
    report = run(tmp_path / "in.parquet", tmp_path / "out.parquet")
    assert report.verdict is Verdict.OK, report.findings
    back = pq.read_table(tmp_path / "out.parquet")
    assert back.column("extra_info").to_pylist() == values
    assert back.column("agent_name").to_pylist() == ["tool", None]
    assert back.schema.field("extra_info").type == extra


def test_feature_metadata_is_left_behind_and_rows_are_equal(tmp_path: Path) -> None:
    rows = [row(f"q{i}") for i in range(3)]
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"huggingface": '{"_type":"List"}'})
    pq.write_table(table, tmp_path / "in.parquet")
    run(tmp_path / "in.parquet", tmp_path / "out.parquet")
    assert pq.ParquetFile(tmp_path / "out.parquet").metadata.metadata is None
    assert read(tmp_path / "out.parquet") == rows


def test_unique_keeps_the_first_and_lists_conflicts(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "in.parquet", repeated_problems(100))
    report = run(source, tmp_path / "out.parquet", unique=True)
    rows = read(tmp_path / "out.parquet")
    assert [item["extra_info"]["index"] for item in rows] == [
        "id-000",
        "id-001",
        "id-002",
        "id-298",
    ]
    (conflict,) = [f for f in report.findings if f.severity is Severity.WARNING]
    assert "'42' (row 2)" in conflict.message and "'41' (row 299)" in conflict.message
    first = (tmp_path / "out.parquet").read_bytes()
    run(source, tmp_path / "out.parquet", unique=True, force=True)
    assert (tmp_path / "out.parquet").read_bytes() == first
    kept_all = run(source, tmp_path / "all.parquet")
    assert kept_all.data["rows_written"] == 300


def test_prompts_of_another_file_are_left_out(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", [row(f"q{i}") for i in range(4)])
    held_out = write_parquet(tmp_path / "val.parquet", [row(" q2\r\n")])
    report = run(source, tmp_path / "out.parquet", without=(held_out,))
    assert [item["prompt"][0]["content"] for item in read(tmp_path / "out.parquet")] == [
        "q0",
        "q1",
        "q3",
    ]
    assert report.data["prompts_left_out"] == 1


def test_chats_end_with_the_answer(tmp_path: Path) -> None:
    chat = [
        {"role": "user", "content": "Half of 8?"},
        {"role": "assistant", "content": "So it is \\boxed{4}."},
    ]
    source = write_jsonl(tmp_path / "in.jsonl", [{"chat": chat, "level": 3}])
    mapping = ColumnMap().but(messages="chat", data_source="math_dapo", system="Be brief.")
    run(source, tmp_path / "out.parquet", mapping)
    (back,) = read(tmp_path / "out.parquet")
    assert back["prompt"] == [{"role": "system", "content": "Be brief."}, chat[0]]
    assert back["reward_model"]["ground_truth"] == "4"
    assert back["extra_info"] == {"level": 3, "split": "train", "index": 0}


def test_values_that_fit_no_one_type_are_refused_with_rows(tmp_path: Path) -> None:
    rows = [row(t, extra_info={"index": i}) for t, i in (("a", 1), ("b", 2), ("c", "x"))]
    report = run(write_jsonl(tmp_path / "in.jsonl", rows), tmp_path / "out.parquet")
    (error,) = report.errors()
    assert "extra_info.index: int (row 1), string (row 3)" in error.message
    assert not (tmp_path / "out.parquet").exists()


def test_existing_output_and_the_input_itself_are_not_overwritten(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "in.parquet", [row()])
    (tmp_path / "out.parquet").write_bytes(b"mine")
    for target in (source, tmp_path / "out.parquet"):
        before = target.read_bytes()
        with pytest.raises(OperatorError):
            run(source, target)
        assert target.read_bytes() == before
    with pytest.raises(OperatorError, match="folder not found"):
        run(source, tmp_path / "none" / "out.parquet")


def test_a_mapping_file_says_the_same_as_flags(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text("question: q\nanswer: a\ndata-source: math_dapo\nroles: {human: user}\n")
    mapping = read_mapping(file)
    assert (mapping.question, mapping.data_source) == ("q", "math_dapo")
    assert mapping.roles == {"human": "user"}
    file.write_text("questoin: q\nsplit: 3\n")
    with pytest.raises(OperatorError) as caught:
        read_mapping(file)
    assert "questoin" in caught.value.message and "split" in caught.value.message


def test_templates(tmp_path: Path) -> None:
    assert "boxed" in ColumnMap().but(template="boxed").template
    (tmp_path / "t.txt").write_text("Q: {question}\n")
    assert ColumnMap().but(template=f"@{tmp_path / 't.txt'}").template == "Q: {question}"
    with pytest.raises(OperatorError, match=r"\{question\} is missing"):
        ColumnMap().but(template="no place for it")


@pytest.mark.parametrize(
    ("text", "how", "expected"),
    [
        ("a\n#### 1,080", "auto", "1080"),
        ("#### 1\n#### 2", "gsm8k", "2"),
        ("so \\boxed{\\frac{1}{2}}.", "auto", "\\frac{1}{2}"),
        ("\\boxed{1} and \\boxed{2", "boxed", "1"),
        ("(1,2)", "auto", "(1,2)"),
        ("1,2", "raw", "1,2"),
        ("-12,345.5", "auto", "-12345.5"),
        ("#### Step 1\nadd\n#### Step 2\nso \\boxed{7}", "auto", "7"),
        ("2+2\n#### 4\n", "auto", "4"),
        ("2+2=4, so \\boxed{4}\n#### 4", "auto", "4"),
        ("so\n#### \\boxed{4}", "gsm8k", "4"),
        ("#### Step 2\nadd", "raw", "#### Step 2\nadd"),
    ],
)
def test_final_answers(text: str, how: Any, expected: str) -> None:
    assert extract_answer(text, how) == expected


@pytest.mark.parametrize(
    ("text", "how", "marked", "words"),
    [
        ("plain", "boxed", False, "no answer in the form boxed"),
        ("plain", "gsm8k", False, "no answer in the form gsm8k"),
        ("#### 4\nand so on", "gsm8k", False, "no answer in the form gsm8k"),
        ("First add.\nIt is seven.", "auto", False, "no #### answer"),
        ("It is seven.", "auto", True, "no #### answer"),
        ("so \\boxed{5}\n#### 7", "auto", True, "different answers"),
    ],
)
def test_no_final_answer(text: str, how: Any, marked: bool, words: str) -> None:
    with pytest.raises(NoAnswer, match=words):
        extract_answer(text, how, marked)


def truths(path: Path) -> list[str]:
    return [item["reward_model"]["ground_truth"] for item in read(path)]


def test_numbers_are_exact_or_rejected(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    numbers = [str(3**60), "-7", "0.1", "0.10000000000000001", "18446744073709551615"]
    source.write_text("".join(f'{{"question": "q", "answer": {n}}}\n' for n in numbers))
    assert run(source, tmp_path / "a.parquet", QA).verdict is Verdict.OK
    assert truths(tmp_path / "a.parquet") == [str(3**60), "-7", "0.1", "0.1", str(2**64 - 1)]
    source.write_text(
        '{"question": "q", "answer": 1}\n{"question": "q", "answer": 3.14159265358979323846}\n'
    )
    report = run(source, tmp_path / "b.parquet", QA)
    (error,) = report.errors()
    assert (
        error.where == f"{source}:2" and "3.14159265358979323846 has more digits" in error.message
    )
    assert not (tmp_path / "b.parquet").exists()
    # pandas makes floats of a column with an empty cell.
    table = write_parquet(tmp_path / "c.parquet", [{"question": "q", "answer": float(3**60)}])
    assert "whose digits are not exact" in str(
        next(iter(run(table, tmp_path / "d.parquet", QA).errors())).message
    )


def test_a_row_without_a_mark_among_marked_ones_is_rejected(tmp_path: Path) -> None:
    rows = [*SUMS, {"question": "and now?", "answer": "It is seven."}]
    source = write_jsonl(tmp_path / "a.jsonl", rows)
    (error,) = run(source, tmp_path / "a.parquet", QA).errors()
    assert error.where == f"{source}:4" and "no #### answer" in error.message
    plain = [{"question": "Capital of France?", "answer": "Paris"}]
    assert (
        run(write_jsonl(tmp_path / "b.jsonl", plain), tmp_path / "b.parquet", QA).verdict
        is Verdict.OK
    )


def test_alpaca_and_templates_with_columns(tmp_path: Path) -> None:
    rows = [
        {"instruction": "Add.", "input": "1 and 2 {question}", "output": "3"},
        {"instruction": "Say 4.", "input": "", "output": "4"},
    ]
    source = write_jsonl(tmp_path / "a.jsonl", rows)
    given = ColumnMap().but(question="instruction", answer="output", data_source="openai/gsm8k")
    assert run(source, tmp_path / "a.parquet", given).verdict is Verdict.OK
    prompts = [item["prompt"][0]["content"] for item in read(tmp_path / "a.parquet")]
    assert prompts == ["Add.\n\n1 and 2 {question}", "Say 4."]
    named = given.but(template="{question} <{input}> in \\boxed{x}")
    assert run(source, tmp_path / "b.parquet", named).verdict is Verdict.OK
    (first, _) = read(tmp_path / "b.parquet")
    assert first["prompt"][0]["content"] == "Add. <1 and 2 {question}> in \\boxed{x}"
    for template, words in (
        ("{question} {hint}", "no such column"),
        ("{question} {output}", "shows the answer"),
    ):
        report = run(source, tmp_path / "c.parquet", given.but(template=template))
        assert any(words in item.message for item in report.errors())


def test_a_bom_and_nan_are_read(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('\ufeff{"question": "q", "answer": "1", "score": NaN}\n', encoding="utf-8")
    assert run(source, tmp_path / "a.parquet", QA).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a", "a"), (" a ", "a"), (3, "3"), (3.0, "3"), (0.5, "0.5"), (10**30, str(10**30)),
     (True, None), (None, None), ("", None), ([1], None), (float("nan"), None),
     (float("inf"), None)],
)  # fmt: skip
def test_answers_as_strings(value: object, expected: str | None) -> None:
    assert normalise_answer(value)[0] == expected
