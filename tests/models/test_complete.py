"""Weights that are present and wrong, against what transformers says when it loads the files."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reprise.core.findings import Finding, Report, Severity
from reprise.models.check import inspect_here, judge
from tests.tables import write_table

from .damages import CONFIGS, FILES, OURS, damaged, kinds, read_model, write_model

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-rehearsal" / "bin" / "python"
ORACLE = Path(__file__).with_name("class_oracle.py")
WHOLE = "whole"
# CI takes these kinds for each architecture: one of each way to be wrong.
SAMPLE = ("absent: head", "absent: last k_proj", "absent: one expert", "shape: one longer",
          "names: prefix", "surplus: a layer", "config: untied",
          "files: stale single file")  # fmt: skip


class Case(NamedTuple):
    """One damaged model: transformers' answer, the findings by transformers and by the table."""

    architecture: str
    kind: str
    oracle: dict[str, Any]
    findings: list[Finding]
    by_table: list[Finding]

    @property
    def wrong(self) -> bool:
        """Does transformers stop, or fill something with random values?"""
        return bool(self.oracle.get("error") or self.oracle["missing"] or self.oracle["mismatched"])


def oracle(*words: str, lines: Sequence[Path] = ()) -> list[dict[str, Any]]:
    done = subprocess.run(
        [str(PYTHON), str(ORACLE), *words],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whole model per architecture, saved by transformers."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "configs.json").write_text(json.dumps(CONFIGS))
    oracle("save", str(folder / "configs.json"), str(folder))
    return folder


def checked(folders: dict[str, Path], python: Path | None) -> dict[str, list[Finding]]:
    """The findings of each folder; all in one call, as if they were on hosts of these names."""
    report = Report("model check")
    judge(report, {name: inspect_here(path) for name, path in folders.items()}, Path("/m"),
          python=python)  # fmt: skip
    found: dict[str, list[Finding]] = {name: [] for name in folders}
    for item in report.findings:
        names = item.where.partition(":/")[0].split(", ")
        for name in names if item.rule != "model-agreement" else ():
            found[name].append(item)
    return found


def cases(wholes: Path, target: Path, chosen: Sequence[str]) -> Iterator[Case]:
    folders: dict[str, Path] = {}
    for architecture in CONFIGS:
        for kind in chosen:
            folder = target / f"{architecture} {kind}".replace(":", "").replace(" ", "_")
            if kind == WHOLE:
                write_model(read_model(wholes / architecture, 0), folder)
            elif not damaged(wholes / architecture, kind, folder, seed=len(folders)):
                continue
            folders[f"{architecture}/{kind}".replace(": ", ".").replace(" ", "_")] = folder
    answers = oracle("load", lines=list(folders.values()))
    ours, tables = checked(folders, PYTHON), checked(folders, None)
    for name, said in zip(folders, answers, strict=True):
        architecture, _, kind = name.partition("/")
        shown = next(k for k in (WHOLE, *kinds()) if k.replace(": ", ".").replace(" ", "_") == kind)
        yield Case(architecture, shown, said, ours[name], tables[name])


def errors(found: Sequence[Finding]) -> list[str]:
    return [item.message for item in found if item.severity is Severity.ERROR]


def faults(found: Sequence[Case]) -> list[str]:
    """Where the check and transformers disagree."""
    wrong = []
    for case in found:
        place = f"{case.architecture} {case.kind}"
        ours, table = errors(case.findings), errors(case.by_table)
        unsure = any(item.message.startswith("names and shapes were not") for item in case.by_table)
        if case.wrong and not ours:
            wrong.append(f"{place}: passes, transformers says {case.oracle}")
        if case.wrong and not table and not unsure:
            wrong.append(f"{place}: passes by its table, transformers says {case.oracle}")
        beyond = case.oracle.get("unexpected") or case.kind in OURS or case.kind in FILES
        if not case.wrong and (ours or table) and not beyond:
            wrong.append(f"{place}: {ours or table}, transformers loads it")
        if case.kind in OURS and not case.findings:
            wrong.append(f"{place}: nothing found")
    return wrong


@pytest.mark.rehearsal
def test_whole_models_pass_and_damaged_ones_do_not(wholes: Path, tmp_path: Path) -> None:
    found = list(cases(wholes, tmp_path, (WHOLE, *SAMPLE)))
    assert {case.architecture for case in found} == set(CONFIGS)
    assert faults(found) == []
    assert [case for case in found if case.kind == WHOLE and case.wrong] == []


@pytest.mark.rehearsal
@pytest.mark.full
def test_every_damage_of_every_architecture(wholes: Path, tmp_path: Path) -> None:
    """Also writes the table of docs/models.md."""
    found = list(cases(wholes, tmp_path, (WHOLE, *kinds())))
    assert not faults(found), "\n".join(faults(found))
    groups: dict[str, Counter[str]] = {}
    for case in found:
        row = groups.setdefault(case.kind.partition(":")[0], Counter())
        row["models"] += 1
        row["wrong"] += case.wrong
        row["error"] += bool(errors(case.findings))
        row["warning"] += not errors(case.findings) and bool(case.findings)
        row["table"] += bool(errors(case.by_table))
    write_table(
        ROOT / "docs" / "models.md",
        "damages",
        ("damage", "models", "wrong for transformers", "error here", "warning here",
         "error by the table alone"),
        [
            (kind, row["models"], row["wrong"], row["error"], row["warning"], row["table"])
            for kind, row in groups.items()
        ],
    )  # fmt: skip
