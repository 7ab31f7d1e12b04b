"""What a run is keyed by, and that the committed reference has the key of the default run."""

import ast
import tomllib
from pathlib import Path

import pytest

from reprise.core.project import find_project
from reprise.flows.key import KEYS, code_of
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("x = 1\n", "# why\nx = 1  # what\n\n", True),
        ("x = '# text'\n", "x = '# other'\n", False),
        ("x = f'{1}# text'\n", "x = f'{1}'\n", False),
        ("x = 1\n", "x = 2\n", False),
        ("if x:\n    y\n", "if x:\n    pass\ny\n", False),
    ],
)
def test_comments_do_not_change_the_key_and_code_does(one: str, other: str, same: bool) -> None:
    ast.parse(one), ast.parse(other)
    assert (code_of(one.encode()) == code_of(other.encode())) is same


@pytest.mark.rehearsal
def test_the_reference_was_recorded_with_what_runs_now() -> None:
    project = find_project()
    key = Rehearsal(project, RehearsalOptions(quiet=True)).key()
    file: Path = project.recipes / "rehearsal" / "reference" / "reference.toml"
    recorded = tomllib.loads(file.read_text(encoding="utf-8"))["provenance"]
    assert {name: recorded[name] for name in KEYS if name in recorded} == {
        name: key[name] for name in KEYS if name in recorded
    }
    assert {"lock", "recipe", "plugins", "model_sha256", "data_sha256"} <= set(recorded)
