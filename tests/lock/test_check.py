from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.core.findings import Severity, Verdict
from reprise.lock.check import check_lock

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "versions.lock").read_text(encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("requirements", "recipes/rehearsal"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "versions.lock").write_text(TEXT)
    return tmp_path


def test_the_shipped_requirements_are_the_locked_ones() -> None:
    report = check_lock(ROOT / "versions.lock")
    assert [item.message for item in report.errors()] == []


def test_as_shipped_it_is_sound_and_says_what_is_not_pinned(project: Path) -> None:
    report = check_lock(project / "versions.lock")
    assert report.verdict is Verdict.OK
    warned = {finding.message.split()[0] for finding in report.findings}
    assert {"image.h20", "image.musa", "package.nvidia-modelopt"} <= warned
    assert all(finding.severity is Severity.WARNING for finding in report.findings)
    assert report.data["machines"]["h20"]["unpinned"] == [
        *("image.h20", "package.nvidia-modelopt"),
        *("model.qwen3-32b", "model.qwen2-5-7b", "model.qwen2-5-32b", "model.llama-3-1-8b"),
        "model.glm-4-5-air",
    ]
    assert report.data["machines"]["mi300x"]["unpinned"] == ["model.qwen3-32b"]
    assert report.data["machines"]["rehearsal"]["unpinned"] == []


def test_a_changed_file_that_is_shipped_is_found(project: Path) -> None:
    weights = project / "recipes" / "rehearsal" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b"x")
    (weights.parent / "tokenizer.json").unlink()
    found = list(check_lock(project / "versions.lock").errors())
    assert {finding.rule for finding in found} == {"lock-shipped"}
    assert {finding.where for finding in found} == {
        f"versions.lock:{TEXT[: TEXT.index('[shipped.start-model]')].count(chr(10)) + 1}"
    }
    said = " | ".join(finding.message for finding in found)
    assert "has 2905833 bytes, the lock says 2905832" in said
    assert "tokenizer.json does not exist" in said
    assert all(finding.fix == "git checkout -- recipes/rehearsal/model" for finding in found)


def test_an_entry_that_is_silently_unpinned_is_an_error(project: Path) -> None:
    path = project / "versions.lock"
    start = TEXT.index("[image.h20]")
    line = TEXT.index("unpinned = ", start)
    path.write_text(TEXT[:line] + TEXT[TEXT.index("\n", line) + 1 :])
    (finding,) = check_lock(path).errors()
    number = TEXT[:start].count("\n") + 1
    assert finding.where == f"versions.lock:{number}"
    assert finding.message == "image.h20 has no digest"
    assert "reprise lock image image.h20 --write" in finding.fix


def test_a_changed_requirements_file_is_found(project: Path) -> None:
    file = project / "requirements/rehearsal.txt"
    file.write_text(file.read_text(encoding="utf-8") + "# a comment\n")
    (finding,) = check_lock(project / "versions.lock").errors()
    assert "requirements/rehearsal.txt has sha256" in finding.message
    file.write_text(file.read_text(encoding="utf-8").replace("verl==0.9.1", "verl==0.9.2"))
    assert len(list(check_lock(project / "versions.lock").errors())) == 2
    file.write_text(file.read_text(encoding="utf-8").replace("verl==0.9.2", "verl"))
    messages = [finding.message for finding in check_lock(project / "versions.lock").errors()]
    assert any("does not pin one exact version" in message for message in messages)
    file.unlink()
    assert check_lock(project / "versions.lock").verdict is Verdict.PROBLEM


def test_two_entries_in_one_place_are_found(project: Path) -> None:
    path = project / "versions.lock"
    path.write_text(TEXT.replace('"third_party/Megatron-Bridge"', '"third_party/verl"'))
    findings = list(check_lock(path).errors())
    assert {finding.rule for finding in findings} == {"lock-paths"}
    assert "tree.megatron-bridge and tree.verl both use the path" in findings[0].message


def test_a_contradiction_names_what_exists(project: Path) -> None:
    path = project / "versions.lock"
    text = TEXT.replace('declared_by = "tree.verl"', 'declared_by = "tree.very"', 1)
    path.write_text(text.replace('"transformers!=5.6.0"', '"transformers not 5.6.0"', 1))
    messages = [finding.message for finding in check_lock(path).errors()]
    assert any("names tree.very" in message for message in messages)
    assert any("is not a valid requirement" in message for message in messages)


def test_an_upper_case_hash_is_noted(project: Path) -> None:
    path = project / "versions.lock"
    commit = "df0852cf94c674de07f9f7ef933c484de8aca505"
    path.write_text(TEXT.replace(commit, commit.upper()))
    report = check_lock(path)
    assert report.verdict is Verdict.OK
    assert any(commit in finding.message for finding in report.findings)


def test_no_file_and_no_text(tmp_path: Path) -> None:
    assert check_lock(tmp_path / "versions.lock").verdict is Verdict.PROBLEM
    path = tmp_path / "versions.lock"
    path.write_bytes(b"schema = 1\n\xff\n")
    (finding,) = check_lock(path).findings
    assert finding.where == "versions.lock:2"


LINES = len(TEXT.splitlines())


def damaged(seed: int, kind: str) -> str:
    """The lock with one random change of a kind."""
    choose = random.Random(seed)
    at = choose.randrange(len(TEXT))
    lines = TEXT.splitlines(keepends=True)
    index = choose.randrange(len(lines))
    if kind == "byte":
        return (
            TEXT[:at]
            + chr(choose.choice([0, 34, 35, 39, 44, 61, 91, 92, 93, 233]))
            + TEXT[at + 1 :]
        )
    if kind == "cut":
        return TEXT[:at]
    if kind == "line":
        return "".join(lines[:index] + lines[index + 1 :])
    if kind == "twice":
        return "".join(lines[: index + 1] + lines[index:])
    other = choose.randrange(len(lines))
    lines[index], lines[other] = lines[other], lines[index]
    return "".join(lines)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["byte", "cut", "line", "twice", "swap"]))
def test_damage_gives_findings_with_lines_and_never_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, seed: int, kind: str
) -> None:
    folder = tmp_path_factory.getbasetemp() / "damage"
    if not folder.exists():
        shutil.copytree(ROOT / "requirements", folder / "requirements")
    path = folder / "versions.lock"
    path.write_text(damaged(seed, kind))
    report = check_lock(path)
    for finding in report.errors():
        name, _, line = finding.where.rpartition(":")
        assert name.endswith(".lock") and 1 <= int(line) <= LINES + 2
        assert finding.message and finding.fix
