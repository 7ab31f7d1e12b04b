"""Limits that combine: each on both sides of its edge, with the facts that decide it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reprise.recipe.config.overrides import Line
from reprise.recipe.load import load
from reprise.recipe.setup import Setup

from .conftest import A, R
from .test_rules import verdict

B64 = {"data.train_batch_size": 64, "trainer.total_epochs": 1}
ROWS = {"rows": 1600}
END = "trainer.total_training_steps"
GSPO = {f"{A}.policy_loss.loss_mode": "gspo"}
LEGACY = {"trainer.use_v1": False, "data.train_batch_size": 25, f"{R}.agent.num_workers": 8}
DISTILL = {"distillation.enabled": True, "algorithm.adv_estimator": "grpo", f"{R}.n": 1}
TASK = "distillation.distillation_loss.use_task_rewards"
QWEN3_4B = {"model_type": "qwen3", "num_attention_heads": 32, "num_key_value_heads": 8,
            "head_dim": 128, "num_hidden_layers": 36, "hidden_size": 2560,
            "intermediate_size": 9728, "vocab_size": 151936,
            "tie_word_embeddings": True}  # fmt: skip
LARGE = {"data.train_batch_size": 512, f"{A}.ppo_mini_batch_size": 512, f"{R}.n": 16,
         "data.max_prompt_length": 2048, "data.max_response_length": 30720,
         "trainer.n_gpus_per_node": 8, "trainer.nnodes": 1,
         "actor_rollout_ref.nccl_timeout": 600}  # fmt: skip

LIMITS: list[tuple[str, str, dict[str, Any], dict[str, Any], str]] = [
    # verl-project/verl#5011: 25 steps, not 100, and no last step.
    ("steps-end", "error", B64 | {END: 100}, ROWS, "training ends after 25 steps"),
    ("steps-end", "error", B64 | {END: 100}, ROWS, "trainer.total_epochs=4"),
    ("steps-end", "ok", B64 | {END: 25}, ROWS, "<= 1 epochs x 25 steps = 25"),
    ("steps-end", "ok", B64 | {END: 100, "trainer.total_epochs": 4}, ROWS, ""),
    ("steps-end", "unknown", B64 | {END: 100}, {}, "rows of the training file"),
    ("steps-end", "n/a", B64, ROWS, "the epochs decide"),
    ("steps-end", "error", B64 | {END: 25, "data.train_max_samples": 640}, ROWS, "10 steps"),
    ("steps-frequencies", "error", B64 | {END: 100, "trainer.save_freq": 50}, ROWS, "at all"),
    ("steps-frequencies", "warning", B64 | {END: 25, "trainer.save_freq": 50}, ROWS,
     "only checkpoint is at the last step"),
    ("steps-frequencies", "ok", B64 | {END: 100, "trainer.save_freq": 5}, ROWS, "<= 25 steps"),
    # Without the rows, total_training_steps is the most that there can be.
    ("steps-frequencies", "warning", B64 | {END: 20, "trainer.save_freq": 50}, {}, "at most"),
    ("steps-frequencies", "unknown", B64 | {END: 20, "trainer.save_freq": 5}, {}, "rows"),
    ("steps-warmup", "error", B64 | {"trainer.critic_warmup": 26}, ROWS, "never trained"),
    ("steps-warmup", "ok", B64 | {"trainer.critic_warmup": 25}, ROWS, ""),
    ("steps-warmup", "warning", B64 | {f"{A}.optim.lr_warmup_steps": 25}, ROWS, "never reaches"),
    ("steps-warmup", "n/a", B64, ROWS, ""),
    ("steps-timeout", "warning", LARGE, {"bf16_tflops": 148.0}, "nccl_timeout="),
    ("steps-timeout", "ok", LARGE | {f"{A}.ppo_mini_batch_size": 16}, {"bf16_tflops": 148.0}, ""),
    ("steps-timeout", "unknown", LARGE, {}, "GPU of the job"),
    ("batch-agent-workers", "error", LEGACY | {f"{R}.n": 2}, {}, "num_workers=10"),
    ("batch-agent-workers", "ok", LEGACY | {f"{R}.n": 8}, {}, "200 % 8"),
    ("batch-agent-workers", "n/a", LEGACY | {"trainer.use_v1": True}, {}, ""),
    ("rollout-validation-size", "warning", {"data.val_batch_size": 8},
     {"val_rows": 960, "val_prompts": 960}, "120 batches"),
    ("rollout-validation-size", "ok", {"data.val_batch_size": 960},
     {"val_rows": 960, "val_prompts": 960}, ""),
    # GSPO's ratio is that of a sequence (verl PR 2775).
    ("algorithm-clip", "warning", GSPO, {}, "clip_ratio_low=3e-4"),
    ("algorithm-clip", "ok",
     GSPO | {f"{A}.clip_ratio_low": 3e-4, f"{A}.clip_ratio_high": 4e-4}, {}, ""),
    ("batch-group-size", "warning", DISTILL | {TASK: True}, {}, "n is 1"),
    ("batch-group-size", "n/a", DISTILL | {TASK: False}, {}, "distillation"),
    # FSDP's ranks that share a sequence, by FSDP's own key.
    ("parallel-world", "error",
     {"trainer.nnodes": 1, "trainer.n_gpus_per_node": 8, f"{A}.strategy": "fsdp",
      f"{A}.ulysses_sequence_parallel_size": 3}, {},
     f"{A}.ulysses_sequence_parallel_size=2 (or 1, 4, 8)"),
    ("parallel-world", "ok",
     {"trainer.nnodes": 1, "trainer.n_gpus_per_node": 8, f"{A}.strategy": "fsdp",
      f"{A}.fsdp_config.ulysses_sequence_parallel_size": 4}, {}, "Ulysses 4"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "wanted", "settings", "known", "part"),
    LIMITS,
    ids=[f"{case[0]}-{case[1]}-{index}" for index, case in enumerate(LIMITS)],
)
def test_limit(
    setup_of: Callable[..., Setup],
    rule: str,
    wanted: str,
    settings: dict[str, Any],
    known: dict[str, Any],
    part: str,
) -> None:
    model = QWEN3_4B if rule == "steps-timeout" else None
    state, text = verdict(rule, setup_of(settings, model, **known))
    assert (state, part in text) == (wanted, True), text


def test_every_local_data_file_counts(root: Path, tmp_path: Path) -> None:
    files = []
    for number, rows in enumerate((600, 1000)):
        files.append(tmp_path / f"{number}.parquet")
        pq.write_table(pa.table({"prompt": ["x"] * rows}), files[-1])
    (tmp_path / "2.jsonl").write_text(f"{json.dumps({'prompt': 'x'})}\n" * 7)

    def rows_of(names: list[Path]) -> int | None:
        text = ",".join(map(str, names))
        return load(root, "rehearsal", [Line(f"data.train_files=[{text}]")]).known.rows

    assert rows_of(files) == 1600
    assert rows_of([*files, tmp_path / "2.jsonl"]) == 1607
    assert rows_of([*files, tmp_path / "absent.parquet"]) is None, "not the rows of the others"


def test_steps_end_with_the_epochs(setup_of: Callable[..., Setup]) -> None:
    setup = setup_of(B64 | {END: 100}, **ROWS)
    assert (setup.steps, setup.steps_at_most, setup.last_step) == (25, 25, False)
    setup = setup_of(B64 | {END: 100})
    assert (setup.steps, setup.steps_at_most, setup.last_step) == (None, 100, None)
    setup = setup_of(B64, **ROWS)
    assert (setup.steps, setup.last_step) == (25, True)
