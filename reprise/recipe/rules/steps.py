"""Steps of the run against rows, epochs, and the save and test frequencies."""

from __future__ import annotations

from reprise.recipe.rules.base import Judgement, NotApplicable, Rule, Source, Undecided
from reprise.recipe.setup import Setup

__all__ = ["RULES"]


def _epoch(setup: Setup, out: Judgement) -> None:
    rows, batch = setup.known.rows, setup.train_batch
    if rows is None:
        raise Undecided("the rows of the training file are not known")
    if not batch:
        raise Undecided("data.train_batch_size is not set")
    steps, rest = divmod(rows, batch)
    out.show(f"{rows:,} rows // batch {batch} = {steps:,} steps an epoch, {rest} rows unused")
    if steps == 0:
        out.error(
            "data.train_batch_size", "recipe-steps-epoch.steps-epoch-rows", rows=rows, batch=batch
        )
    elif rest:
        out.note(
            "data.train_batch_size", "recipe-steps-epoch.steps-epoch-rows-2", steps=steps, rest=rest
        )
    unique = setup.known.prompts
    if unique and unique < rows:
        out.note(
            "data.train_files",
            "recipe-steps-epoch.distinct-prompts-rows",
            unique=unique,
            rows=rows,
            rows2=rows / unique,
            steps=steps,
            unique2=unique // batch,
        )


def _frequencies(setup: Setup, out: Judgement) -> None:
    steps = setup.steps
    if steps is None:
        raise Undecided("the number of steps is not known: the rows of the file are missing")
    for name, what in (("save_freq", "checkpoint"), ("test_freq", "validation")):
        key, freq = f"trainer.{name}", setup.integer(f"trainer.{name}", -1)
        out.show(f"{name} {freq} <= {steps:,} steps")
        if freq > steps > 0:
            out.warn(
                key,
                "recipe-steps-frequencies.steps-run-only",
                freq=freq,
                steps=steps,
                what=what,
                setting=key,
                value=max(1, steps // 5),
            )
        elif freq <= 0 and name == "save_freq" and setup.get("trainer.resume_mode") == "auto":
            out.warn(
                key, "recipe-steps-frequencies.checkpoint-ever-written", freq=freq, setting=key
            )


def _kept(setup: Setup, out: Judgement) -> None:
    freq, steps = setup.integer("trainer.save_freq", -1), setup.steps
    if freq <= 0:
        raise NotApplicable("no checkpoint is written")
    written = steps // freq if steps is not None else None
    shown = f"{written:,} " if written else ""
    for role in ("actor", "critic") if setup.critic else ("actor",):
        key = f"trainer.max_{role}_ckpt_to_keep"
        kept = setup.get(key)
        out.show(
            f"max_{role}_ckpt_to_keep {kept}; written {written if written is not None else '?'}"
        )
        if kept is None and (written is None or written > 3):
            out.warn(
                key,
                "recipe-steps-checkpoints-kept.set-all-checkpoints",
                shown=shown,
                role=role,
                setting=key,
            )


def _truncation(setup: Setup, out: Judgement) -> None:
    policy = str(setup.get("data.truncation", "error"))
    filtered = bool(setup.get("data.filter_overlong_prompts", False))
    out.show(f"filter_overlong_prompts {filtered}, truncation {policy}")
    if filtered:
        return
    effects = {
        "left": "loses its beginning, where the instruction stands",
        "right": "loses its end, where the question stands",
        "middle": "loses its middle",
    }
    if policy in effects:
        out.note(
            "data.truncation",
            "recipe-data-truncation.prompt-over-tokens",
            prompt=setup.prompt,
            effects=effects[policy],
        )
    elif policy == "error":
        out.warn(
            "data.truncation", "recipe-data-truncation.prompt-over-tokens-2", prompt=setup.prompt
        )


RULES = (
    Rule("recipe-steps-epoch", Source("trainer/ppo/v1/trainer_base.py", "drop_last=True,"), _epoch),
    Rule(
        "recipe-steps-frequencies",
        Source("trainer/ppo/v1/trainer_base.py", "self.config.trainer.save_freq > 0"),
        _frequencies,
    ),
    Rule(
        "recipe-steps-checkpoints-kept",
        Source("trainer/config/ppo_trainer.yaml", "max_actor_ckpt_to_keep: null"),
        _kept,
    ),
    Rule(
        "recipe-data-truncation",
        Source("utils/dataset/rl_dataset.py", "self.truncation"),
        _truncation,
    ),
)
