"""Judge the runs of the card: each by its own engine's seeds, the other engine's, and the CPU's.

python benchmarks/gpu/verdicts.py        writes benchmarks/gpu/verdicts.json, prints the table

A run that is among the seeds of a reference is judged by the other seeds alone.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from reprise.core.files import dump_json
from reprise.curves.judge import JudgeOptions, judge_run
from reprise.curves.reference import Reference, load_reference
from reprise.metrics import MetricTable, read_run

HERE = Path(__file__).resolve().parent
RECIPE = HERE.parents[1] / "recipes/rehearsal"
REFERENCES = {
    "gpu/fsdp": RECIPE / "reference-gpu-fsdp",
    "gpu/megatron": RECIPE / "reference-gpu-megatron",
    "cpu/fsdp": RECIPE / "reference",
}


def table(file: Path) -> MetricTable:
    """A metrics file as a run's table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / file.stem
        (folder / "metrics").mkdir(parents=True)
        shutil.copy(file, folder / "metrics/attempt-1.jsonl")
        return read_run(folder)


def without(reference: Reference, seed: int) -> Reference:
    """The reference without its run of `seed`; the whole of it where there is none."""
    kept = [i for i, other in enumerate(reference.seeds) if other != seed]
    runs, seeds = zip(*((reference.runs[i], reference.seeds[i]) for i in kept), strict=True)
    return replace(reference, runs=runs, seeds=seeds)


def runs() -> Iterator[tuple[str, str, Path, int]]:
    """Name, engine, metrics file and seed of every run: the references', and those beside them."""
    for engine in ("fsdp", "megatron"):
        folder = REFERENCES[f"gpu/{engine}"]
        for file in sorted(folder.glob("seed-*.jsonl")):
            seed = int(file.stem.removeprefix("seed-"))
            yield f"{engine}-{seed}", engine, file, seed
        for name in (f"{engine}-1", f"frozen-{engine}"):
            file = HERE / f"runs/{name}.jsonl"
            if file.is_file():
                yield name, engine, file, 1


def main() -> None:
    """Judge every run by every reference."""
    found: list[dict[str, Any]] = []
    for name, engine, file, seed in runs():
        for other, folder in REFERENCES.items():
            reference = load_reference(folder)
            if other == f"gpu/{engine}":
                reference = without(reference, seed)
            rows = table(file)
            steps = min(int(rows.training_steps().max()), reference.steps)
            # The other references' seeds of the same number are other samples.
            judged = judge_run(rows, reference, steps, options=JudgeOptions(accepted=("length",)))
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
