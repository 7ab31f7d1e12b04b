"""The regression test of the bundle: the newest finished run of each recipe must PASS.

    python -m pytest -m regression tests/regression -k rehearsal
    python -m pytest -m regression tests/regression --run runs/hy3/<run>

A recipe without a finished run is an error: nothing was tested. --run judges that one run, against
the reference of the recipe that its run.json names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reprise.curves import Outcome, judge_run, load_reference
from reprise.metrics import read_run

pytestmark = pytest.mark.regression


def facts_of(run: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((run / "run.json").read_text())
    return facts


def newest_finished(runs: Path) -> Path:
    """The last by name (names begin with the time) of the folders whose run has finished."""
    found = [file.parent for file in runs.glob("*/run.json")]
    finished = [run for run in found if facts_of(run).get("state") == "finished"]
    assert finished, f"no finished run in {runs}: make one first (make reproduce MODEL={runs.name})"
    return max(finished, key=lambda run: run.name)


def test_run_passes(recipe: str, request: pytest.FixtureRequest) -> None:
    named, root = request.config.getoption("run"), request.config.getoption("root")
    run = named if named is not None else newest_finished(root / "runs" / recipe)
    facts = facts_of(run)
    assert facts["state"] == "finished", f"{run}: state is {facts['state']}"
    reference = load_reference(root / "recipes" / recipe / "reference")
    judgement = judge_run(read_run(run), reference, facts["steps"], seed=facts.get("seed"))
    assert judgement.outcome is Outcome.PASS, judgement.text()
