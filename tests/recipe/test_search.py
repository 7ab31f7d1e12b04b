"""`recipe plan --search`: layouts that the rules allow and that fit, by an estimated time."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.optimize import nnls

from reprise.core.findings import Severity, Verdict
from reprise.recipe.check import check
from reprise.recipe.config.overrides import Line
from reprise.recipe.load import load
from reprise.recipe.plan.estimate import (
    ERROR,
    LAYER,
    MEASURED_TOKENS,
    SHARE,
    TOKENS,
    estimate,
)
from reprise.recipe.plan.proposals import propose
from reprise.recipe.setup import Setup

ROOT = Path(__file__).resolve().parents[2]
PEAK = 989.0  # TFLOPS, dense bfloat16, NVIDIA H200
LENGTH = 1024


def planner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("planner", ROOT / "benchmarks/gpu/planner.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_constants_are_those_of_the_recorded_steps() -> None:
    """Fitted again, with the errors that every answer prints."""
    measured = json.loads((ROOT / "benchmarks/gpu/measured.json").read_text())
    module = planner()
    rows, seconds = [], []
    for item in measured.values():
        if item["engine"] != "megatron":
            continue
        for variant, passes in (("plain", 3), ("recompute", 4)):
            model = module.setup_of(item["model"], "megatron", variant).model
            counts = model.parameters()
            flops = 2.0 * item["tokens"] * passes
            flops *= counts.active + LENGTH * model.heads * model.head_dim * counts.layers
            overhead = counts.layers * passes / 3
            tokens = overhead * item["tokens"] / MEASURED_TOKENS
            rows.append([overhead, tokens, flops / (PEAK * 1e12)])
            seconds.append(item["variants"][variant]["seconds"])
    found, wanted = np.array(rows), np.array(seconds)
    relative = found / wanted[:, None]
    fit = nnls(relative, np.ones(len(wanted)))[0]
    assert (round(fit[0], 4), round(fit[1], 4), round(1 / fit[2], 4)) == (LAYER, TOKENS, SHARE)
    off = np.abs(relative @ fit - 1)
    out = []
    for place in range(len(wanted)):
        rest = np.ones(len(wanted), bool)
        rest[[place, place ^ 1]] = False  # both variants of a size
        others = nnls(relative[rest], np.ones(int(rest.sum())))[0]
        out.append(abs(relative[place] @ others - 1))
    errors = [np.median(off), off.max(), np.median(out), max(out)]
    assert [round(float(error), 2) for error in errors] == list(ERROR.values())


@pytest.mark.parametrize(
    "name", ["qwen3-8b", pytest.param("qwen3-30b-a3b", marks=pytest.mark.full)]
)
def test_a_proposed_layout_passes_the_check(name: str) -> None:
    loaded = load(ROOT, name)
    report = propose(loaded)
    assert report.verdict is Verdict.OK
    layouts = report.data["layouts"]
    assert [row["seconds"] for row in layouts] == sorted(row["seconds"] for row in layouts)
    memory = loaded.card.machine.gpu_memory or 0
    assert all(max(row["training_gib"], row["rollout_gib"]) <= memory for row in layouts)
    assert report.data["time_error"] == ERROR and "28%" in report.data["time_is"]
    for row in (layouts[0], layouts[-1]):
        made = load(ROOT, name, [Line(text) for text in row["overrides"]])
        checked = check(made.composition, made.known, made.model, ROOT / "recipes")
        wrong = [item.message for item in checked.findings if item.severity is Severity.ERROR]
        assert wrong == []
        setup = Setup(made.composition.values, made.tree, made.model, made.known)
        assert made.model is not None
        counts = made.model.parameters()
        assert counts is not None and loaded.card.machine.bf16_tflops is not None
        again = estimate(setup, made.model, counts, loaded.card.machine.bf16_tflops)
        assert again is not None and round(again.seconds, 1) == row["seconds"]


def test_what_cannot_be_searched_is_unknown() -> None:
    loaded = load(ROOT, "qwen3-8b")
    assert propose(loaded, gpu_memory=8).verdict is Verdict.PROBLEM
    loaded.model = None
    assert propose(loaded).verdict is Verdict.UNKNOWN
    assert propose(load(ROOT, "rehearsal"), gpu_memory=80).verdict is Verdict.UNKNOWN
