"""The pattern files: their own examples, a site's file, what is wrong in one."""

from pathlib import Path

import pytest

from reprise.core.errors import OperatorError
from reprise.triage.engine import examine
from reprise.triage.model import Role
from reprise.triage.patterns import load_library
from reprise.triage.selftest import self_test

SITE = """
[[pattern]]
id = "scratch-purged"
role = "root"
category = "scratch_purged"
literals = ["scratch was purged"]
match = "scratch was purged at (?P<path>\\\\S+)"
explanation = "The site's cleaner removed the run's files."
advice = ["keep runs on /project"]
source = "site"
positive = ["error: scratch was purged at /scratch/u"]
negative = ["scratch is at 40 %"]
"""


def test_every_shipped_pattern_passes_its_own_examples() -> None:
    report = self_test(load_library())
    assert report.findings == []
    assert report.data["patterns"] > 90


def test_every_category_of_a_pattern_has_a_title_and_advice() -> None:
    library = load_library()
    for pattern in library.patterns:
        if pattern.role in {Role.ROOT, Role.CONFIRMATION}:
            assert pattern.category in library.categories, pattern.id
        for name in (pattern.category, *pattern.explains):
            known = name in library.categories or name == "collective_error"
            assert known or not name, f"{pattern.id}: {name}"
    for category in library.categories.values():
        assert category.retry in {"again", "exclude_host", "never"}, category.name
        assert category.title and category.advice


def test_a_sites_patterns_come_first(tmp_path: Path) -> None:
    file = tmp_path / "triage.toml"
    file.write_text(SITE)
    assert self_test(load_library([file])).findings == []
    (tmp_path / "a.log").write_text("ERROR error: scratch was purged at /scratch/u\n")
    found = examine([tmp_path / "a.log"], extra=[file])
    assert found.diagnosis.category == "scratch_purged"
    assert found.diagnosis.root is not None
    assert found.diagnosis.root.first.facts == {"path": "/scratch/u"}


def test_a_wrong_example_fails_the_self_test(tmp_path: Path) -> None:
    file = tmp_path / "triage.toml"
    file.write_text(SITE.replace("error: scratch was purged at", "error: scratch is gone"))
    [finding] = self_test(load_library([file])).findings
    assert "none of the literals" in finding.message
    file.write_text(SITE.replace("scratch is at 40 %", "scratch was purged at /x"))
    [finding] = self_test(load_library([file])).findings
    assert "negative example matches" in finding.message


def test_all_faults_of_a_file_are_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "triage.toml"
    text = SITE.replace('role = "root"', 'role = "cause"').replace("(?P<path>", "(?P<path")
    file.write_text(text.replace('source = "site"', "colour = 1"))
    with pytest.raises(OperatorError) as raised:
        load_library([file])
    for part in (
        "role 'cause'",
        "match is not a regular expression",
        "unknown key colour",
        "source is missing",
    ):
        assert part in raised.value.message


def test_a_file_that_is_not_toml(tmp_path: Path) -> None:
    file = tmp_path / "triage.toml"
    file.write_text("[[pattern\n")
    with pytest.raises(OperatorError, match="expected a TOML file of patterns"):
        load_library([file])
    with pytest.raises(OperatorError, match="expected a TOML file of patterns"):
        load_library([tmp_path / "none.toml"])
