"""Measure how often the verdict is wrong.

    python benchmarks/curves/error_rates.py [--runs N] [--reference FOLDER]... [--out FILE]

bounds: false alarms of the prediction bounds on Gaussian windows, also correlated and uneven ones.
verdict: the whole verdict on runs drawn from the mean and covariance of public seed curves:
         honest runs (a FAIL is a false alarm), runs that keep half of the gain, frozen actors
         (a PASS is a miss), each against k reference runs drawn alike.
all_metrics: the same on synthetic runs that hold every judged metric.
one_run: the same against a single reference run.
leave_one_out: each recorded run against the others, on those curves and on every --reference.

Data: mlperf-grpo-reward.csv, reward of the 18 seed logs of the MLPerf Training 6.1 GRPO benchmark
(mlcommons/training at aa344c7fb900e82ed19fb94aebfed50c63ab2204, llm_post_training/rcp_logs,
Apache-2.0): three global batch sizes, six seeds each.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from reprise.core.files import write_text
from reprise.curves.judge import judge_run
from reprise.curves.reference import (
    KlSpec,
    Metrics,
    ProbsDiffSpec,
    Reference,
    RewardSpec,
    ValidationSpec,
    load_reference,
)
from reprise.curves.spread import ALPHA, bounds
from reprise.metrics import MetricTable
from reprise.metrics.rows import Rows

DATA = Path(__file__).with_name("mlperf-grpo-reward.csv")
REWARD = RewardSpec().metric
VALIDATION = "val-core/synthetic/acc/mean@1"
Counts = dict[str, int]


def seed_curves() -> dict[str, np.ndarray]:
    """Reward curves by batch size, each of shape (6 seeds, steps)."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with DATA.open() as file:
        for row in csv.DictReader(file):
            values[row["global_batch_size"]][row["seed"]].append(float(row["value"]))
    return {size: np.array(list(seeds.values())) for size, seeds in values.items()}


def table_of(curve: np.ndarray) -> MetricTable:
    rows = Rows("simulated", attempt=1)
    for step, value in enumerate(curve, start=1):
        rows.add(REWARD, step, float(value), float("nan"))
    return rows.table("simulated")


def reference_of(curves: np.ndarray) -> Reference:
    runs = tuple(table_of(curve) for curve in curves)
    seeds = (None,) * len(runs)
    return Reference("simulated", "", "recorded", curves.shape[1], Metrics(), runs, seeds, {})


def draw(curves: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` runs with the mean and the covariance between steps of `curves`."""
    mean = curves.mean(axis=0)
    weights = rng.standard_normal((count, len(curves))) / np.sqrt(len(curves) - 1)
    return mean + weights @ (curves - mean)


def weaken(run: np.ndarray, curves: np.ndarray, kept: float) -> np.ndarray:
    """The run with only a share `kept` of the mean curve's rise over its first tenth."""
    mean = curves.mean(axis=0)
    start = mean[: max(1, len(mean) // 10)].mean()
    return run - (1 - kept) * (mean - start)


def study_bounds(draws: int, rng: np.random.Generator) -> list[dict[str, object]]:
    shapes = {
        "even, independent": ([1.0, 1.0, 1.0], 0.0),
        "even, correlated 0.9": ([1.0, 1.0, 1.0], 0.9),
        "spread grows 0.5, 1, 2": ([0.5, 1.0, 2.0], 0.3),
        "spread grows, correlated 0.8": ([0.5, 1.0, 2.0], 0.8),
        "one wide window": ([0.3, 0.3, 2.0], 0.3),
    }
    results = []
    for name, (scales, correlation) in shapes.items():
        windows = len(scales)
        powers = np.abs(np.subtract.outer(np.arange(windows), np.arange(windows)))
        factor = np.linalg.cholesky(correlation**powers + 1e-12 * np.eye(windows))
        for runs in (3, 6, 8):
            wrong = 0
            for _ in range(draws):
                sample = rng.standard_normal((runs + 1, windows)) @ factor.T * scales
                limits = bounds(sample[:runs], ALPHA["reward"])
                wrong += bool((sample[runs] < limits.mean - limits.half).any())
            results.append({"spread": name, "k": runs, "false_alarms": wrong, "of": draws})
    return results


def study_verdict(
    draws: int, rng: np.random.Generator, ks: tuple[int, ...]
) -> list[dict[str, object]]:
    results = []
    for size, curves in seed_curves().items():
        for runs in ks:
            for name, kept in (("honest", 1.0), ("half the gain", 0.5), ("frozen", 0.0)):
                outcomes: Counter[str] = Counter()
                for _ in range(draws):
                    drawn = draw(curves, runs + 1, rng)
                    run = table_of(weaken(drawn[runs], curves, kept))
                    reference = reference_of(drawn[:runs])
                    outcomes[judge_run(run, reference, curves.shape[1]).outcome.value] += 1
                results.append({"curves": size, "k": runs, "run": name, "of": draws, **outcomes})
    return results


def synthetic(rate: float, rng: np.random.Generator, steps: int = 40) -> MetricTable:
    """A run with all judged metrics, shaped like the rehearsal; its speed varies by 10 % (1 sd).

    Reward rises from 0.25 towards 0.85 with step noise 0.045; validation (every tenth step) does
    so with noise 0.027 (256 rows); probs diff and KL are log-normal around 1e-3 and 2e-5.
    """
    speed = rate * np.exp(rng.normal(0, 0.1))
    offset = rng.normal(0, 0.02) * rate
    rows = Rows("synthetic", attempt=1)
    for step in range(1, steps + 1):
        level = 0.25 + 0.6 * (1 - np.exp(-step * speed / 18)) + offset * step / steps
        values = {
            REWARD: float(np.clip(level + rng.normal(0, 0.045), 0, 1)),
            ProbsDiffSpec().metric: float(1e-3 * np.exp(rng.normal(0, 0.2))),
            KlSpec().metric: float(2e-5 * np.exp(rng.normal(0, 0.5))),
        }
        if step % 10 == 0:
            values[VALIDATION] = float(level + rng.normal(0, 0.027))
        rows.add_step(step, values)
    return rows.table("synthetic")


def study_all_metrics(draws: int, rng: np.random.Generator) -> list[dict[str, object]]:
    metrics = Metrics(
        validation=ValidationSpec(metric=VALIDATION),
        probs_diff=ProbsDiffSpec(ceiling=0.015),
        kl=KlSpec(),
    )
    results: list[dict[str, object]] = []
    for runs in (6, 8):
        for name, rate in (("honest", 1.0), ("half the speed", 0.5), ("frozen", 0.0)):
            outcomes: Counter[str] = Counter()
            # The rare event is the false alarm.
            count = 5 * draws if rate == 1.0 else draws
            for _ in range(count):
                tables = tuple(synthetic(1.0, rng) for _ in range(runs))
                seeds = (None,) * runs
                reference = Reference("s", "", "recorded", 40, metrics, tables, seeds, {})
                outcomes[judge_run(synthetic(rate, rng), reference, 40).outcome.value] += 1
            results.append({"k": runs, "run": name, "of": count, **outcomes})
    return results


def leave_one_out(reference: Reference) -> Counts:
    """Each run of `reference` judged against the others."""
    outcomes: Counter[str] = Counter()
    for left in range(len(reference.runs)):
        rest = [i for i in range(len(reference.runs)) if i != left]
        others = dataclasses.replace(
            reference,
            runs=tuple(reference.runs[i] for i in rest),
            seeds=tuple(reference.seeds[i] for i in rest),
        )
        judgement = judge_run(reference.runs[left], others, reference.steps)
        outcomes[judgement.outcome.value] += 1
    return dict(outcomes)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2000, help="draws of each setting")
    parser.add_argument("--reference", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    rng = np.random.default_rng(20260101)
    results: dict[str, object] = {"draws": options.runs}
    left_out = {
        f"mlperf {size}": leave_one_out(reference_of(c)) for size, c in seed_curves().items()
    }
    for path in options.reference:
        left_out[str(path)] = leave_one_out(load_reference(path))
    results["leave_one_out"] = left_out
    results["bounds"] = study_bounds(10 * options.runs, rng)
    results["verdict"] = study_verdict(options.runs, rng, (6, 8))
    results["one_run"] = study_verdict(options.runs, rng, (1,))
    results["all_metrics"] = study_all_metrics(options.runs, rng)
    text = json.dumps(results, indent=1) + "\n"
    if options.out:
        write_text(options.out, text)
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
