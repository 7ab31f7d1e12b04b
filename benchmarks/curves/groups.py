"""Measure how often `reprise compare` is wrong, and how often it sees a difference.

    python benchmarks/curves/groups.py [--draws N] [--docs]

simulated: two groups of n runs of the models of error_rates.py: equal ones (a PASS or FAIL is
           wrong), B at half the speed (FAIL is right) and A at half the speed (PASS is right).
recorded:  every split of the five recorded seeds of a rehearsal into two and three; and each group
           of five against the recorded run at half the speed, and a frozen actor.

--docs writes the tables into docs/compare.md, between its markers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from error_rates import METRICS, STEPS, Row, interval, learning, markdown, table_of, walk

from reprise.core.files import write_text
from reprise.curves.groups import compare_groups
from reprise.curves.groups.columns import Member
from reprise.curves.reference import load_reference
from reprise.metrics import MetricTable, read_run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DOCS = ROOT / "docs/compare.md"
RESULTS = HERE / "groups.json"
MARKS = ("<!-- measured: begin -->", "<!-- measured: end -->")
SIZES = ((1, 5), (2, 2), (3, 3), (5, 5), (8, 8))
RATES = {"equal": (1.0, 1.0), "B at half the speed": (1.0, 0.5), "A at half the speed": (0.5, 1.0)}
REFERENCES = ("reference", "reference-gpu-fsdp", "reference-gpu-megatron")


def outcome(a: list[MetricTable], b: list[MetricTable], steps: int = STEPS) -> str:
    groups = [[Member(table) for table in side] for side in (a, b)]
    return compare_groups(groups[0], groups[1], METRICS, steps).outcome.value


def simulated(draws: int, rng: np.random.Generator) -> Iterator[Row]:
    for name, model in (("learning", learning), ("walk", walk)):
        for first, second in SIZES:
            for kind, (rate_a, rate_b) in RATES.items():
                found: Counter[str] = Counter()
                for _ in range(draws if kind == "equal" else draws // 4):
                    a = [table_of(model(rng, rate_a)) for _ in range(first)]
                    b = [table_of(model(rng, rate_b)) for _ in range(second)]
                    found[outcome(a, b)] += 1
                yield {"model": name, "a": first, "b": second, "kind": kind, **found}
            print(f"{name}, {first} and {second} runs", file=sys.stderr, flush=True)


def recorded() -> Iterator[Row]:
    half = [read_run(ROOT / "benchmarks/sabotage/runs/rate-half-1.jsonl")]
    frozen = [read_run(ROOT / "benchmarks/gpu/runs/frozen-fsdp.jsonl")]
    for name in REFERENCES:
        reference = load_reference(ROOT / "recipes/rehearsal" / name)
        metrics = reference.metrics

        def said(a: list[MetricTable], b: list[MetricTable], metrics: object = metrics) -> str:
            groups = [[Member(table) for table in side] for side in (a, b)]
            steps = min(int(table.training_steps()[-1]) for table in (*a, *b))
            return compare_groups(groups[0], groups[1], metrics, steps).outcome.value  # type: ignore[arg-type]

        found: Counter[str] = Counter()
        for chosen in itertools.combinations(range(5), 2):
            two = [reference.runs[i] for i in chosen]
            three = [reference.runs[i] for i in range(5) if i not in chosen]
            found[said(two, three)] += 1
            found[said(three, two)] += 1
        yield {"a": f"{name}, 2 and 3 of 5", "b": "the others", **found}
        runs = list(reference.runs)
        other, label = (half, "half the speed") if name == "reference" else (frozen, "frozen")
        yield {"a": f"{name}, all 5", "b": label, said(runs, other): 1}
        yield {"a": label, "b": f"{name}, all 5", said(other, runs): 1}


def tables(results: dict[str, list[Row]]) -> str:
    """The measured rates as Markdown."""
    rows = []
    for row in results["simulated"]:
        counts = [int(row.get(key, 0)) for key in ("PASS", "FAIL", "INCONCLUSIVE")]
        total = sum(counts)
        shown = [f"{100 * count / total:.3g}" for count in counts]
        wrong = {"equal": counts[0] + counts[1], "B at half the speed": counts[0]}
        bad = wrong.get(row["kind"], counts[1])
        end = f"{100 * bad / total:.3g} (≤ {100 * interval(bad, total)[1]:.1f})"
        rows.append((row["model"], f"{row['a']} and {row['b']}", row["kind"], *shown, end, total))
    head = ("model", "runs of A and B", "truth", "PASS", "FAIL", "INCONCLUSIVE", "wrong", "draws")
    lines = ["**Simulated groups**, percent; in brackets the upper end of the 95 % interval:"]
    lines += markdown(head, rows)
    kinds = ("PASS", "FAIL", "INCONCLUSIVE")
    counted = [(r["a"], r["b"], *[r.get(kind, 0) for kind in kinds]) for r in results["recorded"]]
    lines += ["", "**Recorded runs**, numbers of comparisons:"]
    lines += markdown(("A", "B", *kinds), counted)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--docs", action="store_true")
    given = parser.parse_args()
    results = {
        "simulated": list(simulated(given.draws, np.random.default_rng(20261201))),
        "recorded": list(recorded()),
    }
    write_text(RESULTS, json.dumps(results, indent=1) + "\n")
    if given.docs:
        before, rest = DOCS.read_text(encoding="utf-8").split(MARKS[0])
        after = rest.split(MARKS[1])[1]
        write_text(DOCS, f"{before}{MARKS[0]}\n{tables(results)}\n{MARKS[1]}{after}")


if __name__ == "__main__":
    main()
