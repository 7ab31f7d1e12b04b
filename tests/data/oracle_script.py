"""Run by the rehearsal's interpreter: does verl take a set of files as they are meant?

Reads lines {"files", "rows", "batch", "limit", "truths"} and writes {"ok", "reason"}. Taken means:
verl's RLHFDataset reads the files, keeps every row that is not over-long, collates them, a
text-only chat template renders each prompt with its text, the scorer of each row gives a right
answer more than a wrong one, the ground truths are those that were written, and one batch can be
made.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import datasets
from accept_script import tokenizer
from omegaconf import OmegaConf
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.utils.reward_score import default_compute_score

datasets.disable_progress_bars()
# As the templates of text-only models: a list of parts is no text.
TEMPLATE = (
    "{% for m in messages %}{{ '<' + m['role'] + '>' + (m['content'] or '') }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
TOKENIZER = tokenizer()
TOKENIZER.chat_template = TEMPLATE


def answer(truth: Any) -> str:
    """An answer in the forms that the scorers look for."""
    shown = truth["target"][0] if isinstance(truth, dict) and truth.get("target") else truth
    tags = f"<answer>{shown}</answer> <answer>{shown}</answer>"
    return f"{tags} \\boxed{{{shown}}}\n#### {shown}\nAnswer: {shown}"


def points(row: dict[str, Any], text: str) -> float:
    """The score of an answer."""
    truth = row["reward_model"]["ground_truth"]
    score = default_compute_score(row["data_source"], text, truth, {})
    return float(score["score"] if isinstance(score, dict) else score)


def judge(item: dict[str, Any], cache: str) -> str | None:
    """None when the files are taken, else the reason."""
    config = OmegaConf.create({
        "cache_dir": cache, "max_prompt_length": item["limit"], "filter_overlong_prompts": True,
        "filter_overlong_prompts_workers": None,
    })  # fmt: skip
    data = RLHFDataset(list(item["files"]), TOKENIZER, config)
    if len(data) != item["rows"]:
        return f"{len(data)} rows are left of {item['rows']}"
    if len(data) < item["batch"]:
        return "no batch"
    items = [data[place] for place in range(len(data))]
    for place, found in enumerate(items):
        text = TOKENIZER.apply_chat_template(found["raw_prompt"], tokenize=False)
        if not text.split(">", 1)[1].strip():
            return f"row {place} has an empty prompt"
        truth = found["reward_model"]["ground_truth"]
        if item["truths"] and truth != item["truths"][place]:
            return f"row {place} has ground truth {truth!r}"
        right, wrong = points(found, answer(truth)), points(found, answer("-1.5"))
        if not (math.isfinite(right) and math.isfinite(wrong) and right > wrong):
            return f"row {place}: a right answer scores {right}, a wrong one {wrong}"
    collate_fn(items)
    return None


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    TOKENIZER.save_pretrained(sys.argv[2])
    for line in sys.stdin:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                reason = judge(json.loads(line), sys.argv[1])
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error)[:300]}"
        answers.write(json.dumps({"ok": reason is None, "reason": reason}) + "\n")
