"""Measure how often the verdict is wrong, with exact (Clopper-Pearson) bounds.

    python benchmarks/curves/error_rates.py [--runs N] [--out FILE] [--docs]

simulated: the whole verdict on runs of two models, for k = 1, 3, 5, 8 reference runs: correct ones
           (a FAIL is a false alarm) and one fault each (a PASS is a miss).
           learning: a saturating curve whose speed and end vary between seeds.
           walk: rewards that drift, with the step noise and seed spread of the GPU rehearsals.
recorded:  every recorded seed of the rehearsal (5 on a CPU, 10 on a GPU and the two judged there)
           against every reference that has the same settings, left out of its own; and all pairs.
edited:    recorded seeds with one fault each, against the other four.
public:    18 public seed logs, each against the other five: the reward alone (MLPerf Training 6.1
           GRPO, mlcommons/training at aa344c7fb900e82ed19fb94aebfed50c63ab2204, Apache-2.0).

--docs writes the tables into docs/curves.md, between its markers.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy import stats

from reprise.core.files import write_text
from reprise.curves.judge import JudgeOptions, judge_run
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


def simulated(draws: int, rng: np.random.Generator) -> Iterator[dict[str, object]]:
    """Outcomes by model, k and fault: every draw has new references and a new run."""
    for name, model in (("learning", learning), ("walk", walk)):
        for k in KS:
            counts: dict[str, Counts] = {fault: Counter() for fault in ("correct", *FAULTS)}
            for draw in range(draws):
                runs = tuple(table_of(model(rng)) for _ in range(k))
                reference = Reference("s", "", "recorded", STEPS, METRICS, runs, (None,) * k, {})
                counts["correct"][outcome(table_of(model(rng)), reference)] += 1
                # The rare event is the false alarm: a fault is drawn every fourth time.
                if draw % 4 == 0:
                    for fault, edit in FAULTS.items():
                        run = table_of(edit(model(rng, RATES.get(fault, 1.0))))
                        counts[fault][outcome(run, reference)] += 1
            for fault, found in counts.items():
                yield {"model": name, "k": k, "run": fault, **found}


def outcome(run: MetricTable, reference: Reference) -> str:
    options = JudgeOptions(accepted=("length",))
    return judge_run(run, reference, reference.steps, options=options).outcome.value


def recorded() -> Iterator[dict[str, object]]:
    """Recorded seeds against the references of the rehearsal, left out of their own."""
    names = ("reference", "reference-gpu-fsdp", "reference-gpu-megatron")
    references = {name: load_reference(RECIPE / name) for name in names}
    runs = {n: list(r.runs) for n, r in references.items()}
    runs["judged on a GPU"] = [
        read_run(ROOT / f"benchmarks/gpu/runs/{n}-1.jsonl") for n in ("fsdp", "megatron")
    ]
    for source, tables in runs.items():
        for name, reference in references.items():
            found: Counts = Counter()
            for table in tables:
                steps = min(int(table.training_steps()[-1]), reference.steps)
                options = JudgeOptions(accepted=("length",))
                found[judge_run(table, reference, steps, options=options).outcome.value] += 1
            yield {"runs": source, "reference": name, **found}
    for name, reference in references.items():
        found = Counter()
        for index, run in enumerate(reference.runs):
            for other in range(len(reference.runs)):
                if other != index:
                    single = dataclasses.replace(
                        reference, runs=(reference.runs[other],), seeds=(None,)
                    )
                    found[judge_run(run, single, reference.steps).outcome.value] += 1
        yield {"runs": f"{name}, pairs", "reference": "one run", **found}


def public() -> Iterator[dict[str, object]]:
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


def rate(row: dict[str, object], name: str) -> str:
    total = sum(int(row.get(key, 0)) for key in ("PASS", "FAIL", "INCONCLUSIVE"))  # type: ignore[call-overload]
    count = int(row.get(name, 0))  # type: ignore[call-overload]
    low, high = interval(count, total)
    return f"{count / total:.1%} ({low:.1%}-{high:.1%})"


def tables(results: dict[str, list[dict[str, object]]]) -> str:
    """The measured rates as Markdown."""
    lines = [
        "Percentages with 95 % Clopper-Pearson intervals.",
        "",
        "| model | k | run | draws | PASS | FAIL | INCONCLUSIVE |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in results["simulated"]:
        total = sum(int(row.get(key, 0)) for key in ("PASS", "FAIL", "INCONCLUSIVE"))  # type: ignore[call-overload]
        cells = [str(row["model"]), str(row["k"]), str(row["run"]), str(total)]
        cells += [rate(row, key) for key in ("PASS", "FAIL", "INCONCLUSIVE")]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "| correct runs | against | PASS | FAIL | INCONCLUSIVE |",
        "|---|---|---|---|---|",
    ]
    for row in [*results["recorded"], *results["public"]]:
        cells = [str(row["runs"]), str(row["reference"])]
        cells += [str(row.get(key, 0)) for key in ("PASS", "FAIL", "INCONCLUSIVE")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=250, help="draws of each model and k")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/curves.md")
    options = parser.parse_args()
    rng = np.random.default_rng(20260101)
    results: dict[str, list[dict[str, object]]] = {
        "recorded": list(recorded()),
        "public": list(public()),
        "simulated": list(simulated(options.runs, rng)),
    }
    text = json.dumps(results, indent=1) + "\n"
    if options.out:
        write_text(options.out, text)
    if options.docs:
        page = DOCS.read_text(encoding="utf-8")
        before, _, rest = page.partition(MARKS[0])
        _, _, after = rest.partition(MARKS[1])
        write_text(DOCS, f"{before}{MARKS[0]}\n{tables(results)}{MARKS[1]}{after}")
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
