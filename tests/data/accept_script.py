"""Run by the rehearsal's Python: load each data file with verl's own data set class.

Reads lines of `FILE ROWS` on standard input, writes `{"file":, "ok":, "reason":}` lines.
"""

from __future__ import annotations

import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import datasets
from omegaconf import OmegaConf
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

datasets.disable_progress_bars()

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] if m['content'] is string else 'x' }}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel({"<unk>": 0, "<pad>": 1}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", pad_token="<pad>")
    made.chat_template = TEMPLATE
    return made


def accept(path: str, rows: int, cache: str) -> str | None:
    """None when the class takes every row, else the reason."""
    config = OmegaConf.create(
        {
            "cache_dir": cache,
            "max_prompt_length": 1 << 20,
            "filter_overlong_prompts": True,
            "filter_overlong_prompts_workers": None,
        }
    )
    data = RLHFDataset(path, TOKENIZER, config)
    if len(data) != rows:
        return f"{rows} rows, but {len(data)} are left after the length filter"
    items = [data[place] for place in range(rows)]
    for item in items:
        item["raw_prompt"][0]["role"]
        item["reward_model"]["ground_truth"]
        item["data_source"]
    collate_fn(items)
    return None


TOKENIZER = tokenizer()

if __name__ == "__main__":
    answers = sys.stdout
    sys.stdout = sys.stderr  # the class prints
    for line in sys.stdin:
        name, count = line.rsplit(" ", 1)
        try:
            reason = accept(name, int(count), sys.argv[1])
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error)[:300]}"
        answers.write(json.dumps({"file": name, "ok": reason is None, "reason": reason}) + "\n")
        answers.flush()
