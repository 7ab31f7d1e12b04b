"""What `reprise train` costs over verl's own command: same config, same machine, alternating.

    .venv/bin/python benchmarks/run/overhead.py --pairs 2 --steps 30 --out results.json

A: `reprise train rehearsal` (checks, a private Ray, submit, watch with alarms, stop Ray).
B: `python -m verl.trainer.main_ppo` typed by hand, as in benchmarks/rehearsal/overhead.py, whose
   code measures both arms and whose text says what is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rehearsal"))

from overhead import Measurement, by_hand, measure, summary

from reprise.files import dump_json
from reprise.project import Project, find_project
from reprise.run.processes import MARK


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


def main() -> None:
    """Alternate the two arms and write every measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    project = find_project()
    scratch = Path(tempfile.mkdtemp(prefix="reprise-bench-"))
    # by_hand changes the folder.
    out = arguments.out.absolute() if arguments.out else None
    results: list[Measurement] = []
    for number in range(arguments.pairs):
        for arm in (trained, by_hand) if number % 2 == 0 else (by_hand, trained):
            result = arm(project, arguments.steps, scratch)
            results.append(result)
            print(
                f"{result.arm}: first step {result.first_step:.1f} s, "
                f"{result.per_step:.2f} s/step, end {result.end:.1f} s",
                flush=True,
            )
    shutil.rmtree(scratch, ignore_errors=True)
    report = {"steps": arguments.steps, "summary": summary(results)}
    if out is not None:
        dump_json(out, report | {"measurements": [asdict(item) for item in results]})
    print(json.dumps(report["summary"], indent=2))


if __name__ == "__main__":
    main()
