"""Judge the runs of the card: each by its own engine's seeds, the other engine's, and the CPU's.

python benchmarks/gpu/verdicts.py        writes benchmarks/gpu/verdicts.json, prints the table
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from reprise.curves.judge import judge_run
from reprise.curves.reference import load_reference
from reprise.files import dump_json
from reprise.metrics import MetricTable, read_run

HERE = Path(__file__).resolve().parent
RECIPE = HERE.parents[1] / "recipes/rehearsal"
REFERENCES = {
    "gpu/fsdp": RECIPE / "reference-gpu-fsdp",
    "gpu/megatron": RECIPE / "reference-gpu-megatron",
    "cpu/fsdp": RECIPE / "reference",
}
SEEDS = (101, 102, 103)


def table(file: Path) -> MetricTable:
    """A metrics file as a run's table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / file.stem
        (folder / "metrics").mkdir(parents=True)
        shutil.copy(file, folder / "metrics/attempt-1.jsonl")
        return read_run(folder)


def main() -> None:
    """Judge every run by every reference."""
    runs: dict[str, tuple[Path, int]] = {}
    for engine in ("fsdp", "megatron"):
        folder = RECIPE / f"reference-gpu-{engine}"
        runs |= {f"{engine}-{s}": (folder / f"seed-{s}.jsonl", s) for s in SEEDS}
        runs[f"frozen-{engine}"] = (HERE / f"runs/frozen-{engine}.jsonl", 1)
    found: list[dict[str, Any]] = []
    for name, (file, seed) in runs.items():
        for other, folder in REFERENCES.items():
            reference = load_reference(folder)
            rows = table(file)
            steps = min(int(rows.training_steps().max()), reference.steps)
            judged = judge_run(rows, reference, steps, seed=seed)
            report = judged.report("verdicts")
            checks = {check.rule: check.state.value for check in report.checks}
            outcome = judged.outcome.value
            row = {"run": name, "reference": other, "steps": steps, "outcome": outcome}
            found.append({**row, "checks": checks, "text": judged.text().splitlines()[1:]})
            open_checks = [rule for rule, state in checks.items() if state != "passed"]
            print(f"{name:16} by {other:13} {outcome:13} {' '.join(open_checks)}")
    dump_json(HERE / "verdicts.json", found)


if __name__ == "__main__":
    main()
