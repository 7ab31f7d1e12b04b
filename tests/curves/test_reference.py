"""A reference is read whole, and all that is wrong with it is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from curves.runs import PROBS, REWARD, records, write, write_reference
from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file
from reprise.curves import load_reference
from reprise.curves.reference import ReferenceProblem

ROOT = Path(__file__).resolve().parents[2]


def problems(folder: Path) -> list[str]:
    with pytest.raises(ReferenceProblem) as raised:
        load_reference(folder)
    report = raised.value.report("curves compare")
    assert report.exit_code == 1
    assert all(finding.fix and finding.where for finding in report.errors())
    return [f"{finding.rule} {finding.where} {finding.message}" for finding in report.errors()]


def test_seeds_metrics_and_provenance(tmp_path: Path) -> None:
    reference = load_reference(write_reference(tmp_path / "toy" / "reference", 3))
    assert (reference.name, reference.recipe, reference.steps) == ("toy", "toy", 40)
    assert reference.seeds == (1, 2, 3)
    assert reference.provenance["machine"] == "a <test> machine"
    assert reference.metrics.kl is not None


def test_every_fault_in_one_pass(tmp_path: Path) -> None:
    folder = write_reference(tmp_path / "reference", 4)
    (folder / "seed-1.jsonl").unlink()
    write(folder / "seed-2.jsonl", records(2)[:30])
    write(folder / "seed-3.jsonl", [(s, {REWARD: d.get(REWARD, 0.0)}) for s, d in records(3)])
    text = (folder / "reference.toml").read_text(encoding="utf-8")
    right = sha256_file(folder / "seed-4.jsonl")
    text = text.replace('file = "seed-4.jsonl"', f'file = "seed-4.jsonl"\nsha256 = "{right[::-1]}"')
    (folder / "reference.toml").write_text(text)
    found = "\n".join(problems(folder))
    assert "seed-1.jsonl the file is missing" in found
    assert "11 of 40 steps have no finite critic/rewards/mean" in found
    assert f"{PROBS} is declared" in found
    assert f"sha256 is {right}" in found


def test_copies_of_one_run_are_refused(tmp_path: Path) -> None:
    folder = write_reference(tmp_path / "reference", 3)
    (folder / "seed-3.jsonl").write_bytes((folder / "seed-1.jsonl").read_bytes())
    assert "only 2 different reward curves" in "\n".join(problems(folder))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("steps = 40", "steps = 0", "steps"),
        ("[metrics.kl]", "[metrics.kll]", "metrics.kll"),
        ("ceiling = 0.015", "ceiling = -1", "metrics.probs_diff.ceiling"),
        ("schema = 1", "schema = 2", "schema"),
        ("schema = 1", "schema = ", "line 1"),
    ],
)
def test_wrong_keys_are_named(tmp_path: Path, old: str, new: str, expected: str) -> None:
    folder = write_reference(tmp_path / "reference", 2)
    toml = folder / "reference.toml"
    toml.write_text(toml.read_text(encoding="utf-8").replace(old, new))
    (found,) = problems(folder)
    assert expected in found


def test_a_run_serves_as_a_reference_of_one(tmp_path: Path) -> None:
    write(tmp_path / "run" / "metrics" / "attempt-1.jsonl", records(1))
    reference = load_reference(tmp_path / "run")
    assert (len(reference.runs), reference.steps) == (1, 40)
    assert reference.metrics.validation is not None
    with pytest.raises(OperatorError):
        load_reference(tmp_path / "nothing")


def test_references_that_ship_are_sound() -> None:
    manifests = sorted(ROOT.glob("recipes/*/reference/reference.toml"))
    assert ROOT / "recipes/hy3/reference/reference.toml" in manifests
    for manifest in manifests:
        load_reference(manifest.parent)
