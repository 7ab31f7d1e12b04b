"""Each command that a finding about data prints, typed as printed: the finding is gone after it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from reprise.cli import app
from reprise.core.rules import known_rules
from tests.fixes import commands, is_text, run

from .inputs import row, verl_tree, write_jsonl, write_parquet

MESSAGE = {"role": "user", "content": "1+1?"}


def rows_of(count: int = 3, **more: Any) -> list[dict[str, Any]]:
    return [row(f"{i}+1?", str(i + 1), extra_info={"index": i}, **more) for i in range(count)]


def with_footer(kind: str) -> Callable[[Path], Path]:
    """A parquet file as the datasets package writes it."""
    features = {"prompt": {"feature": {"role": {"_type": "Value"}}, "_type": kind}}
    meta = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}

    def write(folder: Path) -> Path:
        path = folder / "t.parquet"
        pq.write_table(pa.Table.from_pylist(rows_of()).replace_schema_metadata(meta), path)
        return path

    return write


def lines(rows: list[dict[str, Any]]) -> Callable[[Path], Path]:
    return lambda folder: write_jsonl(folder / "t.jsonl", rows)


def parquet(rows: list[dict[str, Any]]) -> Callable[[Path], Path]:
    return lambda folder: write_parquet(folder / "t.parquet", rows)


def table(text: str, name: str = "t.csv") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return write


def many_lines(later: Callable[[int], dict[str, Any]]) -> Callable[[Path], Path]:
    """More than the 10 MiB after which datasets has settled its types; then other rows."""
    filler = [row("x" * 50_000, "1", extra_info={"index": i}, level=1) for i in range(230)]
    return lines([*filler, *(later(i) for i in range(3))])


@dataclass(frozen=True)
class Case:
    """A fault: the text that reports it, the file that has it, further words of the check."""

    text: str
    write: Callable[[Path], Path]
    words: tuple[str, ...] = ()
    validation: Callable[[Path], Path] | None = None
    # Put in place of what only the operator can know.
    filled: dict[str, str] = field(default_factory=dict)
    output: str = "OUT.parquet"
    # Which of the fix's commands.
    number: int = 0


QA = [{"question": f"{i}+1?", "answer": str(i + 1)} for i in range(3)]
CASES = [
    Case("data-columns.missing", lines(QA), filled={"NAME": "math_dapo"}),
    Case("data-columns.missing", parquet(QA), filled={"NAME": "math_dapo"}),
    Case(
        "data-file.wrong-format", table("question,answer\n1+1?,2\n"), output="t.parquet",
        filled={"question COLUMN": "question question", "answer COLUMN": "answer answer",
                "NAME": "math_dapo"},
    ),
    Case("data-footer.metadata", with_footer("Sequence")),
    Case("data-footer.list-type", with_footer("List"), ("--datasets", "3.6.0")),
    Case("data-footer.list-type-unknown-image", with_footer("List")),
    Case("data-ground-truth.spaces", lines([row(truth=" 2 ")])),
    Case("data-ground-truth.not-a-string", lines([row(truth=2)])),
    Case("data-leak.shared-prompts", parquet(rows_of(5)), validation=parquet(rows_of(1))),
    Case("data-prompt.plain-text", parquet([row() | {"prompt": "1+1?"}])),
    Case("data-prompt.json-text", parquet([row() | {"prompt": json.dumps([MESSAGE])}])),
    Case("data-prompt.one-message", parquet([row() | {"prompt": MESSAGE}])),
    Case("data-prompt-role.renamed", lines([row([MESSAGE | {"role": "human"}])])),
    Case("data-repeats.repeated", parquet(rows_of(2) * 3)),
    Case(
        "data-repeats.repeated-steps", parquet(rows_of(2) * 3), ("--set", "data.train_batch_size=2")
    ),
    # A key that comes late; a further field of two types.
    Case("data-type.later-chunk", many_lines(lambda i: row("q", "1", extra_info={"new": i}))),
    Case("data-type.later-chunk", many_lines(lambda i: row("q", "1", level=[i]))),
    Case("data-type.dates", lines([row(truth="2024-01-02")])),
]  # fmt: skip


def checked(tree: Path, words: tuple[str, ...], train: Path, val: Path | None) -> dict[str, Any]:
    files = [str(train), *(["--val", str(val)] if val else [])]
    done = CliRunner().invoke(app, ["data", "check", *files, "--verl", str(tree), *words, "--json"])
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def findings(told: dict[str, Any], name: str) -> list[dict[str, str]]:
    rule = name.partition(".")[0]
    return [f for f in told["findings"] if f["rule"] == rule and is_text(name, f["message"])]


NOT_RUN = {
    # Text: why the command is not run as it is printed.
    "data-file.damaged": "reprise data fetch asks the file's server (test_fetch.py)",
    "data-file.none-given": "FILE is the operator's own",
    "data-missing.own-file": "FILE is the operator's own",
    "data-hash.locked-digest": "the operator chooses the revision",
    "data-hash.locked-size": "as data-hash.locked-digest",
    "data-prompt.other-type": "prompts of numbers: no command makes prompts of them",
    "data-reward.cannot-import": "make env-rehearsal installs torch from an index",
    "data-reward.no-environment": "as data-reward.cannot-import",
    "data-source.no-router": "make setup fetches verl from its server",
    "data-source.no-verl": "as data-source.no-router",
    "data-source.unreadable": "as data-source.no-router",
    "data-template.refused": "which role to rename depends on the template",
}
BELOW = {"data-samples.too-large", "data-schema.types-differ", "data-type.mixed"}
"""Texts whose commands have a test of their own below."""


def test_each_printed_command_is_run_or_has_a_reason() -> None:
    """A new text with a command belongs in CASES, or in NOT_RUN."""
    printed = {
        f"{rule.id}.{name}"
        for rule in known_rules().values()
        if rule.layer == "data"
        for name, text in rule.texts.items()
        if re.search(r"(?:^|[`;,:(] ?|or |with )(?:reprise|make|git|sh) (?!the )", text.fix)
    }
    assert printed - {case.text for case in CASES} == {*NOT_RUN, *BELOW}


@pytest.mark.parametrize("case", CASES, ids=[f"{case.text}-{i}" for i, case in enumerate(CASES)])
def test_the_command_works_as_printed(case: Case, tmp_path: Path) -> None:
    """In a folder whose name has a space: a path in a command must be quoted."""
    folder = tmp_path / "my data"
    (folder / "val").mkdir(parents=True)
    tree = tree_of(tmp_path)
    train = case.write(folder)
    val = case.validation(folder / "val") if case.validation else None
    told = checked(tree, case.words, train, val)
    found = findings(told, case.text)
    assert found, told["findings"]
    command = commands(found[0]["fix"])[case.number]
    for placeholder, text in case.filled.items():
        assert placeholder in command
        command = command.replace(placeholder, text)
    assert run(command, folder) == 0, command
    output = folder / case.output
    again = checked(tree, case.words, output, val)
    assert findings(again, case.text) == [], again["findings"]
    assert again["verdict"] == "ok", again["findings"]
    assert again["files"][0]["rows"] > 0


def tree_of(folder: Path) -> Path:
    tree = verl_tree(folder / "tree")
    (tree / "verl/trainer/config").mkdir(parents=True)
    (tree / "verl/trainer/config/ppo_trainer.yaml").write_text("{}\n")
    return tree


def test_a_validation_file_without_repeats_and_more_samples_of_each(tmp_path: Path) -> None:
    tree = tree_of(tmp_path)
    train = write_parquet(tmp_path / "train.parquet", [row("train?", "1")])
    val = write_parquet(tmp_path / "val.parquet", rows_of(3) * 4)
    key = "actor_rollout_ref.rollout.val_kwargs.n"
    told = checked(tree, ("--set", f"{key}=4"), train, val)
    (found,) = findings(told, "data-samples.too-large")
    (command,) = commands(found["fix"])
    assert run(command, tmp_path) == 0
    after = f"{key}=4"
    assert after in found["fix"].partition("--unique")[2]
    again = checked(tree, ("--set", after), train, tmp_path / "OUT.parquet")
    assert findings(again, "data-samples.too-large") == []
    # The other way out: the same file, one sample of each row.
    assert f"{key}=1" in found["fix"]
    again = checked(tree, ("--set", f"{key}=1"), train, val)
    assert findings(again, "data-samples.too-large") == []


def test_two_files_of_different_types_after_the_same_conversion(tmp_path: Path) -> None:
    tree = tree_of(tmp_path)
    texts = write_parquet(tmp_path / "a.parquet", [row(truth="2")])
    numbers = write_parquet(tmp_path / "b.parquet", [row(truth=2)])
    done = CliRunner().invoke(
        app, ["data", "check", str(texts), str(numbers), "--verl", str(tree), "--json"]
    )
    assert findings(json.loads(done.stdout), "data-schema.types-differ"), done.stdout
    for path in (texts, numbers):
        assert run(f"reprise data convert {path} {path.stem}-new.parquet", tmp_path) == 0
    files = [str(tmp_path / f"{name}-new.parquet") for name in "ab"]
    done = CliRunner().invoke(app, ["data", "check", *files, "--verl", str(tree), "--json"])
    assert json.loads(done.stdout)["verdict"] == "ok", done.stdout


def test_mixed_answers_after_the_conversion(tmp_path: Path) -> None:
    tree = tree_of(tmp_path)
    mixed = write_jsonl(tmp_path / "m.jsonl", [row(truth="2"), row("2+1?", 3)])
    assert findings(checked(tree, (), mixed, None), "data-type.mixed")
    assert run("reprise data convert m.jsonl out.parquet", tmp_path) == 0
    assert checked(tree, (), tmp_path / "out.parquet", None)["verdict"] == "ok"
