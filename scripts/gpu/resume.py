#!/usr/bin/env python3
"""A checkpoint saved under one layout and loaded under another, by verl's own engine; no rollout.

    python3 ranks.py 2 python resume.py save --config C --model DIR --to DIR --out FILE
    python3 ranks.py 2 python resume.py load --config C --model DIR --to DIR --form plain --out FILE

`save` trains STEPS steps on fixed tokens and saves in two forms: `plain`, as verl saves by default,
and `reshardable` (dist_ckpt_optim_fully_reshardable); then it trains one more step. `load` starts
from the model, loads one form (of `reshardable` without the random state, whose shape is that of
the pipeline), compares every weight with what was saved, trains the one step and compares again:
the weights after it depend on the optimizer's moments, which no weight shows.
"""

from __future__ import annotations

import argparse
import random
import time
import traceback
from pathlib import Path
from typing import Any

import engine as verl_engine

STEPS = 5
PROMPTS, LENGTH = 64, 8
FORMS = ("plain", "reshardable")


def batches(vocabulary: int, data_rank: int, data_size: int) -> list[Any]:
    """STEPS + 1 batches of fixed random tokens; each data parallel rank has its share of the rows.

    The shares of all ranks together are the same rows under every layout.
    """
    draw = random.Random(0)  # noqa: S311 - the same tokens everywhere, not a secret
    made = []
    for _ in range(STEPS + 1):
        rows = [[draw.randrange(6, vocabulary) for _ in range(2 * LENGTH)] for _ in range(PROMPTS)]
        own = rows[data_rank::data_size]
        made.append(([row[:LENGTH] for row in own], [row[LENGTH:] for row in own]))
    return made


class Trainer:
    """verl's worker, and the fixed batches of its data parallel rank."""

    def __init__(self, options: argparse.Namespace) -> None:
        verl_engine.prepare()
        config = verl_engine.read_config(options.config, options.model)
        contents = ["model", "optimizer"]
        if options.what == "save" or options.form == "plain":
            contents.append("extra")
        config["actor_rollout_ref"]["actor"]["checkpoint"]["load_contents"] = contents
        self.worker = verl_engine.training_worker(config)
        engine = self.worker.engine
        self.data_size = engine.get_data_parallel_size()
        self.worker.set_loss_fn(self.loss)
        vocabulary = engine.model_config.hf_config.vocab_size
        self.batches = batches(vocabulary, engine.get_data_parallel_rank(), self.data_size)

    def loss(self, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        """Minus the mean log-probability of the answers of all ranks.

        Megatron-LM averages gradients over data parallel ranks, so each gives the mean of its own
        equal share. Only answers count: what follows a sequence's last token depends on padding.
        """
        del dp_group
        from verl.workers.utils.padding import no_padding_2_padding

        log_probs = no_padding_2_padding(model_output["log_probs"], data)
        return -log_probs.sum() / (PROMPTS // self.data_size * LENGTH), {}

    def step(self, number: int) -> dict[str, Any]:
        """Train on batch `number`; the metrics, where this rank has them."""
        prompts, answers = self.batches[number]
        out = self.worker.train_batch(verl_engine.batch(prompts, answers, 0))
        if out is None:
            return {}
        from verl.utils import tensordict_utils as tu

        metrics = tu.get(out, "metrics")
        return {name: metrics[name] for name in ("loss", "grad_norm") if name in metrics}


def difference(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two sets of weights: names on one side only, equal tensors, the largest difference."""
    common = sorted(one.keys() & other.keys())
    errors = {name: (one[name] - other[name]).abs().max().item() for name in common}
    worst = max(errors, key=errors.__getitem__, default="")
    return {
        "keys": len(common),
        "one_side_only": sorted(one.keys() ^ other.keys()),
        "equal": sum(error == 0 for error in errors.values()),
        "largest": errors.get(worst),
        "at": worst,
    }


def save(options: argparse.Namespace, found: dict[str, Any]) -> None:
    """Train, save in both forms, keep the weights, train once more and keep those."""
    from safetensors.torch import save_file

    trainer = Trainer(options)
    before = verl_engine.weights(trainer.worker)
    found["steps"] = [trainer.step(number) for number in range(STEPS)]
    weights = verl_engine.weights(trainer.worker)
    found["trained"] = difference(before, weights)
    manager = trainer.worker.engine.checkpoint_mananager
    for form in FORMS:
        manager.config.megatron.dist_ckpt_optim_fully_reshardable = form == "reshardable"
        began = time.monotonic()
        # Each in a folder of its own role, as a run has it.
        folder = options.to / form / f"global_step_{STEPS}" / "actor"
        folder.mkdir(parents=True, exist_ok=True)
        trainer.worker.save_checkpoint(str(folder), global_step=STEPS)
        found[f"{form}_seconds"] = round(time.monotonic() - began, 1)
    found["next"] = trainer.step(STEPS)
    after = verl_engine.weights(trainer.worker)
    if verl_engine.rank() == 0:
        options.to.mkdir(parents=True, exist_ok=True)
        for name, kept in (("saved", weights), ("next", after)):
            save_file(
                {key: value.contiguous() for key, value in kept.items()},
                options.to / f"{name}.safetensors",
            )
    found["state"] = "saved"


def load(options: argparse.Namespace, found: dict[str, Any]) -> None:
    """Load one form and compare, then one step and compare again."""
    from safetensors.torch import load_file

    trainer = Trainer(options)
    found["state"] = "built"
    folder = options.to / options.form / f"global_step_{STEPS}" / "actor"
    trainer.worker.load_checkpoint(str(folder))
    found["state"] = "loaded"
    kept = {name: load_file(options.to / f"{name}.safetensors") for name in ("saved", "next")}
    found["weights"] = difference(kept["saved"], verl_engine.weights(trainer.worker))
    found["next"] = trainer.step(STEPS)
    found["after_next"] = difference(kept["next"], verl_engine.weights(trainer.worker))
    # What one step changes at all: the scale of the difference above.
    found["one_step"] = difference(kept["saved"], kept["next"])
    found["state"] = "trained"


def main() -> int:
    """Run one part; what was found is written also when verl refuses."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("save", "load"))
    for name in ("config", "model", "to", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--form", choices=FORMS, default="plain")
    options = parser.parse_args()
    found: dict[str, Any] = {"what": options.what, "config": options.config.stem}
    found |= {"from": options.to.name, "form": options.form, "state": "started"}
    code = 0
    try:
        (save if options.what == "save" else load)(options, found)
    except Exception as error:
        # A layout that verl refuses is a result: its first line, and where it stopped.
        found["error"] = (
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        )
        found["traceback"] = traceback.format_exc()[-3000:]
        traceback.print_exc()
        code = 1
    verl_engine.save(verl_engine.own_file(options.out), found)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
