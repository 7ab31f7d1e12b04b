"""The regression test of the bundle: the newest finished run of each recipe must PASS.

    python -m pytest -m regression tests/regression -k rehearsal
    python -m pytest -m regression tests/regression --run runs/hy3/<run>

A recipe without a finished run is an error: nothing was tested. --run judges that one run, against
the reference of the recipe that its run.json names.
"""

from __future__ import annotations

import pytest

from reprise.curves import Outcome, judge_run, load_reference
from reprise.metrics import read_run
from reprise.runs.state.folder import RunFolder, newest_finished

pytestmark = pytest.mark.regression


def test_run_passes(recipe: str, request: pytest.FixtureRequest) -> None:
    named, root = request.config.getoption("run"), request.config.getoption("root")
    run = RunFolder(named) if named is not None else newest_finished(root / "runs", recipe)
    missing = f"no finished run in {root / 'runs' / recipe}: make one first"
    assert run is not None, f"{missing} (make reproduce MODEL={recipe})"
    facts = run.read()
    assert facts.status == "finished", f"{run.path}: state is {facts.status}"
    reference = load_reference(root / "recipes" / recipe / "reference")
    judgement = judge_run(read_run(run.path), reference, facts.steps, seed=facts.seed)
    assert judgement.outcome is Outcome.PASS, judgement.text()
