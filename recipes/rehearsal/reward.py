"""The rehearsal's reward: 1 for the exact answer, 0 for anything else."""

from __future__ import annotations

from typing import Any

__all__ = ["compute_score"]


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    **_: Any,
) -> dict[str, float | str]:
    """Score one response, in the form that verl's naive reward manager takes.

    `score` is the reward (0 or 1), `acc` the same number as the accuracy that validation
    averages, `pred` what was read as the answer. The end token may still be in the text.
    """
    answer = solution_str.replace("<eos>", "").strip()
    correct = float(answer == ground_truth)
    return {"score": correct, "acc": correct, "pred": answer}
