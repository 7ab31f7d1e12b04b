"""Judge the runs with SGLang by the other seeds of their shape.

    python benchmarks/gpu/sglang_verdicts.py     writes benchmarks/gpu/sglang/verdicts.json

None of these seeds is a reference that the project ships: their machine was taken back before all
were whole. Each is compared over the steps that it and its references have.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from verdicts import HERE, REFERENCES, table

from reprise.core.files import dump_json
from reprise.curves.judge import JudgeOptions, judge_run
from reprise.curves.reference import Reference, load_reference

FOLDER = HERE / "sglang"
# Fewer steps are no curve.
LEAST = 10
SHAPES = ("qwen3", "moe")
SEEDS = (101, 102, 103)


def reference(whole: Reference, shape: str, apart_from: str) -> Reference:
    """The seeds of `shape` that reached LEAST steps, without the run that is to be judged."""
    names = [f"{shape}-{seed}" for seed in SEEDS if f"{shape}-{seed}" != apart_from]
    found = {int(name.rpartition("-")[2]): table(FOLDER / f"{name}.jsonl") for name in names}
    reached = {seed: int(rows.training_steps().max()) for seed, rows in found.items()}
    # A run that ended half way would shorten the comparison of all.
    longest = max(reached.values())
    seeds = tuple(seed for seed in found if reached[seed] > longest - LEAST)
    steps = min(reached[seed] for seed in seeds)
    runs = tuple(found[seed] for seed in seeds)
    return replace(whole, runs=runs, seeds=seeds, steps=steps, provenance={})


def main() -> None:
    """Judge every run of a shape, and the one with a frozen actor."""
    whole = load_reference(REFERENCES["gpu/megatron"])
    kept: list[dict[str, Any]] = []
    provenance = json.loads((FOLDER / "runs.json").read_text(encoding="utf-8"))
    for shape in SHAPES:
        for name in (*(f"{shape}-{seed}" for seed in SEEDS), f"{shape}-frozen"):
            rows = table(FOLDER / f"{name}.jsonl")
            others = reference(whole, shape, name)
            steps = min(int(rows.training_steps().max()), others.steps)
            accepted = ("length", "recipe", "data")
            judged = judge_run(rows, others, steps, options=JudgeOptions(accepted=accepted))
            checks = {c.rule: c.state.value for c in judged.report("verdicts").checks}
            left = {rule: state for rule, state in checks.items() if state != "passed"}
            row = {"run": name, "id": provenance[name]["id"], "by": list(others.seeds)}
            row |= {"steps": steps, "outcome": judged.outcome.value, "open": left}
            kept.append({**row, "text": judged.text().splitlines()[1:]})
            print(f"{name:14} by {others.seeds} over {steps} steps: {row['outcome']} {left}")
    dump_json(FOLDER / "verdicts.json", kept)


if __name__ == "__main__":
    main()
