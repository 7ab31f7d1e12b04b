"""What `reprise train` costs over verl's own command: same config, same machine, alternating.

    .venv/bin/python benchmarks/run/overhead.py --pairs 2 --steps 30 --out results.json

A: `reprise train rehearsal` (checks, a private Ray, submit, watch with alarms, stop Ray).
B: `python -m verl.trainer.main_ppo` typed by hand, as in benchmarks/rehearsal/overhead.py, whose
   code measures both arms and whose text says what is compared.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rehearsal"))

from overhead import Measurement, alternate, measure

from reprise.core.project import Project
from reprise.runs.ray.processes import MARK


def trained(_: Project, steps: int, scratch: Path) -> Measurement:
    """The command with its watch."""
    runs = scratch / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    environment = {**os.environ, "RUNS_DIR": str(runs), MARK: "none"}
    command = [sys.executable, "-m", "reprise", "train", "--seed", "1", "--", "rehearsal"]
    command.append(f"trainer.total_training_steps={steps}")

    def find() -> Path | None:
        found = list(runs.glob("rehearsal/*/metrics/attempt-1.jsonl"))
        if environment[MARK] == "none" and (folders := list(runs.glob("rehearsal/*"))):
            environment[MARK] = folders[0].name
        return found[0] if found else None

    return measure("chain", command, environment, find)


if __name__ == "__main__":
    alternate(__doc__ or "", trained, pairs=2, steps=30)
