"""Measure how often the verdict is wrong, with exact (Clopper-Pearson) bounds.

    python benchmarks/curves/error_rates.py [--runs N] [--only STUDY...] [--out FILE] [--docs]

simulated: the whole verdict on runs of two models, for k = 1, 3, 5, 8 reference runs: correct ones
           (a FAIL is a false alarm) and one fault each (a PASS is a miss).
           learning: a saturating curve whose speed and end vary between seeds.
           walk: rewards that drift, with the step noise and seed spread of the GPU rehearsals.
recorded:  every recorded seed of the rehearsal (5 on a CPU, 10 on a GPU and the two judged there)
           against every reference that has the same settings, left out of its own; and all pairs.
edited:    every recorded seed of the rehearsal with one fault each, against the other four.
sabotage:  real runs with one defect each (benchmarks/sabotage), and frozen actors on a GPU, against
           the recorded seeds of their platform and engine.
public:    18 public seed logs, each against the other five: the reward alone (MLPerf Training 6.1
           GRPO, mlcommons/training at aa344c7fb900e82ed19fb94aebfed50c63ab2204, Apache-2.0).

A fault is drawn in every second draw. --only leaves the other studies of FILE as they are. --docs
writes the tables into docs/curves.md, between its markers.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from reprise.core.files import write_text
from reprise.curves.judge import Judgement, JudgeOptions, judge_run
from reprise.curves.reference import (
    KlSpec,
    Metrics,
    ProbsDiffSpec,
    Reference,
    RewardSpec,
    ValidationSpec,
    load_reference,
)
from reprise.metrics import MetricTable, read_run
from reprise.metrics.rows import Rows

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RECIPE = ROOT / "recipes/rehearsal"
DOCS = ROOT / "docs/curves.md"
MARKS = ("<!-- measured: begin -->", "<!-- measured: end -->")
REWARD, PROBS, KL = RewardSpec().metric, ProbsDiffSpec().metric, KlSpec().metric
VALIDATION = "val-core/synthetic/acc/mean@1"
KS = (1, 3, 5, 8)
STEPS = 40
Values = dict[str, np.ndarray]
Counts = Counter[str]
Row = dict[str, Any]
METRICS = Metrics(
    reward=RewardSpec(windows=4, range=(0, 1)),
    validation=ValidationSpec(metric=VALIDATION, rows=256),
    probs_diff=ProbsDiffSpec(ceiling=0.015),
    kl=KlSpec(),
)


def learning(rng: np.random.Generator, rate: float = 1.0) -> Values:
    """A run whose reward saturates: speed varies by 10 % between seeds, its end by 0.02."""
    steps = np.arange(STEPS + 1)
    speed = rate * np.exp(rng.normal(0, 0.1))
    offset = rng.normal(0, 0.02) * min(rate, 1.0)
    level = 0.25 + 0.6 * (1 - np.exp(-steps * speed / 18)) + offset * steps / STEPS
    return _rest(level, rng, 0.045)


def walk(rng: np.random.Generator, rate: float = 1.0) -> Values:
    """A run whose reward drifts: independent steps of the level, slower towards the end."""
    steps = np.arange(STEPS + 1)
    mean = 0.28 + rate * 0.6 * (steps / STEPS) ** 0.6
    drift = np.cumsum(rng.normal(0, 0.006, STEPS + 1))
    return _rest(mean + drift - drift[0], rng, 0.04)


def _rest(level: np.ndarray, rng: np.random.Generator, noise: float) -> Values:
    """The other metrics of a run whose reward has `level`, as the rehearsal's spread."""
    level = np.clip(level, 0.02, 0.98)
    steps = np.arange(STEPS + 1)
    count = STEPS + 1

    def positive(mean: np.ndarray | float, between: float, within: float) -> np.ndarray:
        return mean * np.exp(rng.normal(0, between) + rng.normal(0, within, count))

    return {
        REWARD: np.clip(level + rng.normal(0, noise, count), 0, 1),
        VALIDATION: rng.binomial(256, level) / 256,
        PROBS: positive(1e-3, 0.08, 0.4),
        KL: positive(5e-5, 0.17, 1.3),
        "actor/entropy": positive(1.1 * np.exp(-steps / 24), 0.02, 0.05),
        "actor/grad_norm": positive(0.9, 0.08, 0.36),
        "response_length/mean": positive(3.04, 0.002, 0.015),
        "prompt_length/mean": np.full(count, 8.0),
        "response_length/clip_ratio": np.clip(positive(0.05, 0.3, 1.2), 0, 1),
        "response/aborted_ratio": np.zeros(count),
    }


def table_of(values: Values) -> MetricTable:
    rows = Rows("simulated", attempt=1)
    tokens = 128 * (values["prompt_length/mean"] + values["response_length/mean"])
    values = {**values, "perf/total_num_tokens": tokens}
    for step in range(STEPS + 1):
        found = {k: float(v[step]) for k, v in values.items() if k != VALIDATION and step}
        if step % 10 == 0:
            found[VALIDATION] = float(values[VALIDATION][step])
        rows.add_step(step, found)
    return rows.table("simulated")


def scaled(name: str, factor: float) -> Callable[[Values], Values]:
    return lambda run: {**run, name: run[name] * factor}


def from_step(name: str, value: float, first: int) -> Callable[[Values], Values]:
    def edit(run: Values) -> Values:
        late = run[name].copy()
        late[first:] = value
        return {**run, name: late}

    return edit


def dropped(name: str, by: float) -> Callable[[Values], Values]:
    return lambda run: {**run, name: np.clip(run[name] - by, 0, 1)}


FAULTS: dict[str, Callable[[Values], Values]] = {
    "reward x 10": scaled(REWARD, 10),
    "reward x 100": scaled(REWARD, 100),
    "reward -0.3": dropped(REWARD, 0.3),
    "validation -0.3": dropped(VALIDATION, 0.3),
    "probs diff x 3": scaled(PROBS, 3),
    "KL x 100": scaled(KL, 100),
    "entropy 0 from step 11": from_step("actor/entropy", 0.0, 11),
    "gradient norm x 1e4": scaled("actor/grad_norm", 1e4),
    "length x 2": scaled("response_length/mean", 2),
    "clipped from step 15": from_step("response_length/clip_ratio", 1.0, 15),
    "frozen": lambda run: run,
    "half the speed": lambda run: run,
}
RATES = {"frozen": 0.0, "half the speed": 0.5}
TWICE = "twice the detectable drop"


def simulated(draws: int, rng: np.random.Generator) -> Iterator[Row]:
    """Outcomes by model, k and fault: every draw has new references and a new run."""
    for name, model in (("learning", learning), ("walk", walk)):
        for k in KS:
            counts: dict[str, Counts] = {fault: Counter() for fault in ("correct", *FAULTS, TWICE)}
            for draw in range(draws):
                runs = tuple(table_of(model(rng)) for _ in range(k))
                reference = Reference("s", "", "recorded", STEPS, METRICS, runs, (None,) * k, {})
                correct = judged(table_of(model(rng)), reference)
                counts["correct"][correct.outcome.value] += 1
                if draw % 2 == 0:
                    for fault, edit in FAULTS.items():
                        run = table_of(edit(model(rng, RATES.get(fault, 1.0))))
                        counts[fault][outcome(run, reference)] += 1
                    # What the verdict itself states for a drop over the whole run.
                    drop = 2 * float(correct.check("resolution").numbers["smallest_whole"])
                    run = table_of(dropped(REWARD, drop)(model(rng)))
                    counts[TWICE][outcome(run, reference)] += 1
            for fault, found in counts.items():
                yield {"model": name, "k": k, "run": fault, **found}
            print(f"{name}, {k} reference runs", file=sys.stderr, flush=True)


def judged(run: MetricTable, reference: Reference) -> Judgement:
    """The verdict over the steps that both have."""
    steps = min(int(run.training_steps()[-1]), reference.steps)
    return judge_run(run, reference, steps, options=JudgeOptions(accepted=("length",)))


def outcome(run: MetricTable, reference: Reference) -> str:
    return judged(run, reference).outcome.value


def recorded() -> Iterator[Row]:
    """Recorded seeds against the references of the rehearsal, left out of their own."""
    references = {name: load_reference(RECIPE / name) for name in REFERENCES}
    runs = {n: list(r.runs) for n, r in references.items()}
    runs["judged on a GPU"] = [
        read_run(ROOT / f"benchmarks/gpu/runs/{n}-1.jsonl") for n in ("fsdp", "megatron")
    ]
    for source, tables in runs.items():
        for name, reference in references.items():
            found: Counts = Counter()
            for table in tables:
                found[outcome(table, reference)] += 1
            yield {"runs": source, "reference": name, **found}
    for name, reference in references.items():
        found = Counter()
        for index, run in enumerate(reference.runs):
            for other in range(len(reference.runs)):
                if other != index:
                    single = dataclasses.replace(
                        reference, runs=(reference.runs[other],), seeds=(None,)
                    )
                    found[outcome(run, single)] += 1
        yield {"runs": f"{name}, pairs", "reference": "one run", **found}


EDITS: dict[str, tuple[str, Callable[[float], float]]] = {
    "reward x 10": (REWARD, lambda value: value * 10),
    "reward negated": (REWARD, lambda value: -value),
    "reward -0.3": (REWARD, lambda value: max(value - 0.3, 0.0)),
    "validation -0.2": ("val-core/reprise/arithmetic/acc/mean@1", lambda value: value - 0.2),
    "validation -0.3": ("val-core/reprise/arithmetic/acc/mean@1", lambda value: value - 0.3),
    "probs diff x 2": (PROBS, lambda value: value * 2),
    "probs diff x 2.5": (PROBS, lambda value: value * 2.5),
    "KL x 10": (KL, lambda value: value * 10),
    "KL x 100": (KL, lambda value: value * 100),
    "entropy x 0.1": ("actor/entropy", lambda value: value / 10),
    "gradient norm x 10": ("actor/grad_norm", lambda value: value * 10),
    "length x 2": ("response_length/mean", lambda value: value * 2),
}
REFERENCES = ("reference", "reference-gpu-fsdp", "reference-gpu-megatron")


def edited() -> Iterator[Row]:
    """Every recorded seed with one fault, against the other four of its reference."""
    for fault, (metric, edit) in EDITS.items():
        for name in REFERENCES:
            reference = load_reference(RECIPE / name)
            found: Counts = Counter()
            for index, seed in enumerate(reference.seeds):
                rows = Rows("edited", attempt=1)
                file = RECIPE / name / f"seed-{seed}.jsonl"
                for line in file.read_text(encoding="utf-8").splitlines():
                    record = json.loads(line)
                    data = record["data"]
                    data |= {metric: edit(data[metric])} if metric in data else {}
                    rows.add_step(record["step"], data)
                found[outcome(rows.table("edited"), reference.without(index))] += 1
            yield {"run": fault, "reference": name, **found}


def sabotage() -> Iterator[Row]:
    """Recorded runs with a real defect; the checks that gave evidence."""
    folder = ROOT / "benchmarks/sabotage"
    kept = json.loads((folder / "recordings.json").read_text(encoding="utf-8"))
    runs = [(folder / f"runs/{name}.jsonl", fact, "reference") for name, fact in kept.items()]
    for engine in ("fsdp", "megatron"):
        fact = {"defect": "frozen", "seed": 1}
        file = ROOT / f"benchmarks/gpu/runs/frozen-{engine}.jsonl"
        runs.append((file, fact, f"reference-gpu-{engine}"))
    for file, fact, name in runs:
        run = read_run(file)
        verdict = judged(run, load_reference(RECIPE / name))
        evidence = [c.rule for c in verdict.checks if c.state.value == "failed"]
        open_ = [c.rule for c in verdict.checks if c.state.value == "unknown"]
        yield {
            "run": fact["defect"],
            "seed": fact["seed"],
            "steps": int(run.training_steps()[-1]),
            "reference": name,
            "outcome": verdict.outcome.value,
            "failed": evidence,
            "unknown": open_,
        }


def public() -> Iterator[Row]:
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (HERE / "mlperf-grpo-reward.csv").open() as file:
        for row in csv.DictReader(file):
            values[row["global_batch_size"]][row["seed"]].append(float(row["value"]))
    for size, seeds in values.items():
        tables = []
        for curve in seeds.values():
            rows = Rows("public", attempt=1)
            for step, value in enumerate(curve, start=1):
                rows.add_step(step, {REWARD: value})
            tables.append(rows.table("public"))
        count = len(next(iter(seeds.values())))
        reference = Reference(
            size, "", "recorded", count, Metrics(), tuple(tables), (None,) * len(tables), {}
        )
        found: Counts = Counter(outcome(table, reference) for table in tables)
        yield {"runs": f"MLPerf, batch size {size}", "reference": "the other 5", **found}
        pairs: Counts = Counter()
        for index, run in enumerate(tables):
            for other in range(len(tables)):
                if other != index:
                    single = dataclasses.replace(reference, runs=(tables[other],), seeds=(None,))
                    pairs[outcome(run, single)] += 1
        yield {"runs": f"MLPerf, batch size {size}, pairs", "reference": "one run", **pairs}


def interval(count: int, total: int) -> tuple[float, float]:
    """Clopper-Pearson's 95 % interval of a rate."""
    exact = stats.binomtest(count, total).proportion_ci(0.95, "exact")
    return float(exact.low), float(exact.high)


OUTCOMES = ("PASS", "FAIL", "INCONCLUSIVE")


def total(row: Row) -> int:
    return sum(int(row.get(key, 0)) for key in OUTCOMES)


def percent(row: Row, name: str) -> str:
    return f"{100 * int(row.get(name, 0)) / total(row):.3g}"


def most(row: Row, name: str) -> str:
    """The upper end of the interval of a rate, in percent."""
    return f"{100 * interval(int(row.get(name, 0)), total(row))[1]:.1f}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = ["", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return lines + [f"| {' | '.join(map(str, row))} |" for row in rows]


def tables(results: dict[str, list[Row]]) -> str:
    """The measured rates as Markdown."""
    simulated = results["simulated"]
    draws = {total(row) for row in simulated if row["run"] != "correct"}
    lines = [
        "**Simulated correct runs**, percent of "
        f"{total(simulated[0])} draws a row; in brackets the upper end of the 95 % "
        "Clopper-Pearson interval of FAIL, the false alarm:",
    ]
    lines += markdown(
        ("model", "reference runs", "PASS", "FAIL", "INCONCLUSIVE"),
        (
            [
                row["model"],
                row["k"],
                percent(row, "PASS"),
                f"{percent(row, 'FAIL')} (≤ {most(row, 'FAIL')})",
                percent(row, "INCONCLUSIVE"),
            ]
            for row in simulated
            if row["run"] == "correct"
        ),
    )
    lines += [
        "",
        f"**Simulated faults**, {', '.join(map(str, sorted(draws)))} draws a cell: percent PASS "
        "(the upper end of its interval) / percent FAIL, by the number of reference runs; the rest "
        "is INCONCLUSIVE.",
    ]
    cells: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for row in simulated:
        if row["run"] != "correct":
            shown = f"{percent(row, 'PASS')} (≤ {most(row, 'PASS')}) / {percent(row, 'FAIL')}"
            cells[str(row["model"]), str(row["run"])][int(row["k"])] = shown
    lines += markdown(
        ("model", "fault", *(f"k = {k}" for k in KS)),
        ([model, fault, *(found[k] for k in KS)] for (model, fault), found in cells.items()),
    )
    lines += ["", "**Recorded correct runs**, numbers of verdicts:"]
    lines += markdown(
        ("correct runs", "against", *OUTCOMES),
        (
            [row["runs"], row["reference"], *(row.get(key, 0) for key in OUTCOMES)]
            for row in [*results["recorded"], *results["public"]]
        ),
    )
    lines += ["", "**Recorded seeds with one fault**, each against the other four:"]
    lines += markdown(
        ("fault", "of", *OUTCOMES),
        (
            [row["run"], row["reference"], *(row.get(key, 0) for key in OUTCOMES)]
            for row in results["edited"]
        ),
    )
    lines += ["", "**Real runs with one defect** (benchmarks/sabotage):"]
    lines += markdown(
        ("defect", "steps", "against", "verdict", "failed", "unknown"),
        (
            [
                *(row[name] for name in ("run", "steps", "reference", "outcome")),
                ", ".join(row["failed"]),
                ", ".join(row["unknown"]),
            ]
            for row in results["sabotage"]
        ),
    )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=366, help="draws of each model and k")
    parser.add_argument("--only", nargs="*", choices=STUDIES, help="studies to run; default: all")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/curves.md")
    options = parser.parse_args()
    results: dict[str, list[Row]] = {}
    if options.out.is_file():
        results = json.loads(options.out.read_text(encoding="utf-8"))
    for name in STUDIES if options.only is None else options.only:
        if name == "simulated":
            results[name] = list(simulated(options.runs, np.random.default_rng(20260101)))
        else:
            results[name] = list(STUDIES[name]())
        write_text(options.out, json.dumps(results, indent=1) + "\n")
    if options.docs:
        page = DOCS.read_text(encoding="utf-8")
        before, _, rest = page.partition(MARKS[0])
        _, _, after = rest.partition(MARKS[1])
        write_text(DOCS, f"{before}{MARKS[0]}\n{tables(results)}{MARKS[1]}{after}")
    return 0


STUDIES: dict[str, Callable[..., Iterator[Row]]] = {
    "recorded": recorded,
    "public": public,
    "edited": edited,
    "sabotage": sabotage,
    "simulated": simulated,
}


if __name__ == "__main__":
    raise SystemExit(main())
