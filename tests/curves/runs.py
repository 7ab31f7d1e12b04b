"""Synthetic runs in verl's format, and references made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

REWARD = "critic/rewards/mean"
PROBS = "training/rollout_probs_diff_mean"
VALID = "training/rollout_probs_diff_valid"
KL = "rollout_corr/k3_kl"
VALIDATION = "val-core/toy/acc/mean@1"
STEPS = 40

Records = list[tuple[int, dict[str, float]]]


def records(seed: int, rate: float = 1.0, steps: int = STEPS, mismatch: float = 1.0) -> Records:
    """A run like the rehearsal's: reward .25 -> .78 in 40 steps; `rate` 0 is a frozen actor."""
    rng = np.random.default_rng(seed)
    speed = rate * np.exp(rng.normal(0, 0.1))
    rows: Records = [(0, {VALIDATION: 0.25 + float(rng.normal(0, 0.027))})]
    for step in range(1, steps + 1):
        level = 0.25 + 0.6 * (1 - np.exp(-step * speed / 18))
        values = {
            REWARD: level + rng.normal(0, 0.045),
            PROBS: 1e-3 * mismatch * np.exp(rng.normal(0, 0.2)),
            VALID: 1.0,
            KL: 2e-5 * mismatch**2 * np.exp(rng.normal(0, 0.5)),
            "actor/grad_norm": 1 + abs(rng.normal()),
            "actor/entropy": 1 - 0.01 * step,
            "response_length/clip_ratio": 0.01,
        }
        if step % 10 == 0:
            values[VALIDATION] = level + rng.normal(0, 0.027)
        rows.append((step, {key: float(value) for key, value in values.items()}))
    return rows


def write(path: Path, rows: Records) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"step": s, "data": d}) + "\n" for s, d in rows))
    return path


def write_curve(path: Path, metric: str, values: Mapping[int, float]) -> Path:
    """A wide CSV with one metric."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "".join(f"{step},{value!r}\n" for step, value in values.items())
    path.write_text(f"step,{metric}\n{body}")
    return path


METRICS = f"""
[metrics.reward]
windows = 4
[metrics.validation]
metric = "{VALIDATION}"
[metrics.probs_diff]
ceiling = 0.015
[metrics.kl]
[provenance]
machine = "a <test> machine"
"""


def write_reference(folder: Path, seeds: int, metrics: str = METRICS, steps: int = STEPS) -> Path:
    """A reference of `seeds` synthetic runs with seeds 1..n."""
    text = f'schema = 1\nrecipe = "toy"\nsteps = {steps}\n'
    for seed in range(1, seeds + 1):
        write(folder / f"seed-{seed}.jsonl", records(seed, steps=steps))
        text += f'[[runs]]\nfile = "seed-{seed}.jsonl"\nseed = {seed}\n'
    (folder / "reference.toml").write_text(text + metrics)
    return folder
