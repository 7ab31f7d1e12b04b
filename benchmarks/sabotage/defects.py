"""Real training with one defect that no configuration shows: a replay buffer for verl's trainer.

    trainer.v1.sampler.custom_sampler.path=FOLDER/defects.py
    trainer.v1.sampler.custom_sampler.name=SabotagedReplayBuffer
    +trainer.v1.sampler.sampler_kwargs.defect=NAME

verl's trainer loads this file in its own process before it makes any worker. The buffer samples as
the rehearsal's does; on construction it changes the trainer that asked for it, in memory. The
recorded configuration, lock and plug-ins stay those of a correct run, so that only the curve can
show the defect. Written for verl 0.9.1 and its trainer mode "sync". record.py uses it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import verl.trainer.ppo.v1.trainer_base as trainer_base
from reprise_plugins.sampler import FastReplayBuffer

STALE_FROM = 11
"""First step whose rollout no longer gets new weights."""
TEMPERATURE = 1.3
"""What training computes log-probabilities with, where the rollout samples at 1."""
NOISE = 0.25
"""Share of rewards that are inverted before the advantage is computed."""

Batch = Any
Trainer = Any
Defect = Callable[[Trainer], None]


def _configured(path: str, change: Callable[[Any], Any]) -> Defect:
    """A defect that replaces one value of the configuration, after it was recorded."""

    def install(trainer: Trainer) -> None:
        node = trainer.config
        *parents, key = path.split(".")
        for name in parents:
            node = node[name]
        node[key] = change(node[key])

    return install


def _advantage(before: Callable[[Batch], None], after: Callable[[Batch], None]) -> Defect:
    """A defect around the computation of the advantages; the logged rewards stay true."""

    def install(trainer: Trainer) -> None:
        module: ModuleType = trainer_base
        original = module.compute_advantage_for_multi_trajectories

        @functools.wraps(original)
        def broken(data: Batch, *args: Any, **kwargs: Any) -> Batch:
            before(data)
            data = original(data, *args, **kwargs)
            after(data)
            return data

        module.compute_advantage_for_multi_trajectories = broken

    return install


def _nothing(_: Any) -> None:
    """No change: the kit itself, without a defect."""


def _negate(data: Batch) -> None:
    data.batch["advantages"] = -data.batch["advantages"]


def _of_next_sample(data: Batch) -> None:
    """Give each sample the advantage of the next one, which is most often of the same prompt."""
    mask = data.batch["response_mask"]
    rows = (data.batch["advantages"] * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    data.batch["advantages"] = torch.roll(rows, -1, dims=0).unsqueeze(-1) * mask


def _mask_starts_late(data: Batch) -> None:
    """Shift the response mask by one token: the first token of each answer is not trained."""
    mask = data.batch["response_mask"].clone()
    mask[:, 0] = 0
    data.batch["response_mask"] = mask


def _scale(data: Batch) -> None:
    data.batch["token_level_rewards"] = data.batch["token_level_rewards"] * 10


_DRAWS = torch.Generator().manual_seed(0)


def _noise(data: Batch) -> None:
    """Invert a quarter of the rewards (0 becomes 1), with the same draws in every run."""
    rewards = data.batch["token_level_rewards"].clone()
    ends = data.batch["response_mask"].sum(-1).long().clamp(min=1) - 1
    flipped = torch.rand(len(rewards), generator=_DRAWS) < NOISE
    rows = torch.arange(len(rewards))[flipped]
    rewards[rows, ends[flipped]] = 1 - rewards[rows].sum(-1)
    data.batch["token_level_rewards"] = rewards


def _stale(trainer: Trainer) -> None:
    original = trainer.on_step_end

    def on_step_end() -> None:
        if trainer.global_steps < STALE_FROM - 1:
            original()

    trainer.on_step_end = on_step_end


def _temperature(trainer: Trainer) -> None:
    original = trainer.on_train_begin

    def on_train_begin() -> None:
        # The agent loop has its own copy of the configuration by now, and samples at 1.
        trainer.config.actor_rollout_ref.rollout.temperature = TEMPERATURE
        original()

    trainer.on_train_begin = on_train_begin


def _same_batch(trainer: Trainer) -> None:
    original = trainer._fetch_one_gen_batch
    kept: list[dict[str, Any]] = []

    def fetch() -> Any:
        if not kept:
            kept.append(dict(next(iter(trainer.train_dataloader))))
        trainer.train_dataloader_it = iter([dict(kept[0])])
        return original()

    trainer._fetch_one_gen_batch = fetch


def _short(trainer: Trainer) -> None:
    """Cut answers after two tokens: sums of three digits cannot be said."""
    for path in ("data.max_response_length", "actor_rollout_ref.rollout.response_length"):
        _configured(path, lambda _: 2)(trainer)


def _validate_on_training(trainer: Trainer) -> None:
    trainer.config.data.val_files = trainer.config.data.train_files


_RATE = "actor_rollout_ref.actor.optim.lr"
DEFECTS: dict[str, Defect] = {
    "none": _nothing,
    "frozen": _configured(_RATE, lambda _: 0.0),
    "rate-half": _configured(_RATE, lambda rate: rate / 2),
    "rate-tenfold": _configured(_RATE, lambda rate: rate * 10),
    "advantage-sign": _advantage(_nothing, _negate),
    "advantage-of-next": _advantage(_nothing, _of_next_sample),
    "reward-noise": _advantage(_noise, _nothing),
    "reward-tenfold": _advantage(_scale, _nothing),
    "mask-late": _advantage(_nothing, _mask_starts_late),
    "stale-weights": _stale,
    "temperature": _temperature,
    "same-batch": _same_batch,
    "short-answers": _short,
    "kl-loss": _configured("actor_rollout_ref.actor.kl_loss_coef", lambda _: 1.0),
    "clipping-off": _configured("actor_rollout_ref.actor.clip_ratio_high", lambda _: 1e6),
    "precision": _configured(
        "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype", lambda _: "bf16"
    ),
    "validation-on-training": _validate_on_training,
}


class SabotagedReplayBuffer(FastReplayBuffer):
    """The rehearsal's buffer; the trainer that makes it gets the defect `sampler_kwargs.defect`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        name = str(kwargs["sampler_kwargs"]["defect"])
        # verl hands over a method of the trainer, to ask it for more prompts.
        DEFECTS[name](kwargs["refill_fn"].__self__)
        print(f"sabotage: {name}", flush=True)
        super().__init__(*args, **kwargs)
