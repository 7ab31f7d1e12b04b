"""The rehearsal's reward function, loaded from its file as verl loads it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

REWARD = Path(__file__).parents[2] / "recipes" / "rehearsal" / "reward.py"


@pytest.fixture(scope="module")
def compute_score():
    spec = importlib.util.spec_from_file_location("rehearsal_reward", REWARD)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.compute_score


@pytest.mark.parametrize(
    ("answer", "score"),
    [("104", 1), ("104<eos>", 1), (" 104 ", 1), ("10", 0), ("1040", 0), ("", 0), ("+104", 0)],
)
def test_only_the_exact_answer_scores(compute_score, answer, score):
    result = compute_score("reprise/arithmetic", answer, "104", {"index": 0}, other=1)
    assert result == {"score": score, "acc": score, "pred": answer.replace("<eos>", "").strip()}
