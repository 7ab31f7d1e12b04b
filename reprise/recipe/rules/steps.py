"""Steps of the run against rows and epochs, save and test frequencies, truncation."""

from __future__ import annotations

from reprise.recipe.plan.time import update_compute
from reprise.recipe.rules.base import Judgement, NotApplicable, Rule, Source, Undecided, choice
from reprise.recipe.rules.memory import NO_GPU, on_cpu
from reprise.recipe.setup import Setup

__all__ = ["RULES"]

_ACTOR = "actor_rollout_ref.actor"


_NO_ROWS = "the number of rows of the training file is unknown"


def _epoch(setup: Setup, out: Judgement) -> None:
    rows, batch = setup.known.rows, setup.train_batch
    if rows is None:
        raise Undecided(_NO_ROWS)
    if not batch:
        raise Undecided("data.train_batch_size is not set")
    most = setup.integer("data.train_max_samples", -1)
    used = min(rows, most) if most > 0 else rows
    steps, rest = divmod(used, batch)
    out.show(f"{used:,} rows // batch {batch} = {steps:,} steps per epoch, {rest} rows unused")
    if steps == 0:
        out.error("data.train_batch_size", "recipe-steps-epoch.none", rows=used, batch=batch)
        return
    if rest:
        out.note("data.train_batch_size", "recipe-steps-epoch.unused-rows", steps=steps, rest=rest)
    unique = setup.known.prompts
    if unique and unique < rows:
        out.note(
            "data.train_files",
            "recipe-steps-epoch.repeated-prompts",
            unique=unique,
            rows=rows,
            times=rows / unique,
            steps=steps,
            unique_steps=unique // batch,
        )


def _end(setup: Setup, out: Judgement) -> None:
    stated, ends, steps = setup.stated_steps, setup.epochs_end, setup.epoch_steps
    if stated is None:
        raise NotApplicable("total_training_steps is not set: the epochs decide")
    if ends is None or steps is None:
        raise Undecided(_NO_ROWS)
    epochs = setup.integer("trainer.total_epochs", 1)
    out.show(f"total_training_steps {stated:,} <= {epochs} epochs x {steps:,} steps = {ends:,}")
    if stated > ends > 0:
        out.error(
            "trainer.total_training_steps",
            "recipe-steps-end.epochs-first",
            stated=stated,
            epochs=epochs,
            steps=steps,
            ends=ends,
            needed=-(-stated // steps),
        )


def _frequencies(setup: Setup, out: Judgement) -> None:
    steps = setup.steps_at_most
    if steps is None:
        raise Undecided(_NO_ROWS)
    for name, what in (("save_freq", "checkpoint"), ("test_freq", "validation")):
        key, freq = f"trainer.{name}", setup.integer(f"trainer.{name}", -1)
        out.show(f"{name} {freq} <= {steps:,} steps{'' if setup.steps else ' at most'}")
        if freq > steps > 0:
            found: dict[str, object] = {"freq": freq, "steps": steps, "what": what}
            sizes = dict.fromkeys(max(1, steps // part) for part in (5, 3, 2))
            found |= {"setting": key, "suggested": choice(sizes, max(1, steps // 5))}
            if setup.last_step is False:
                out.error(key, "recipe-steps-frequencies.never", **found)
            else:
                out.warn(key, "recipe-steps-frequencies.too-late", **found)
        elif freq <= 0 and name == "save_freq" and setup.get("trainer.resume_mode") == "auto":
            out.warn(key, "recipe-steps-frequencies.no-checkpoint", freq=freq)
    if setup.steps is None and all(
        setup.integer(f"trainer.{name}", -1) <= steps for name in ("save_freq", "test_freq")
    ):
        raise Undecided(_NO_ROWS)


def _warmup(setup: Setup, out: Judgement) -> None:
    steps = setup.steps_at_most
    critic = setup.integer("trainer.critic_warmup")
    rate = setup.integer(f"{_ACTOR}.optim.lr_warmup_steps", -1)
    if critic <= 0 and rate <= 0:
        raise NotApplicable("no warm-up is set")
    if steps is None:
        raise Undecided(_NO_ROWS)
    updates = steps * setup.integer("trainer.v1.separate_async.parameter_sync_step", 1)
    out.show(f"critic_warmup {critic} <= {steps:,} steps; lr_warmup_steps {rate} < {updates:,}")
    if critic > steps:
        key = "trainer.critic_warmup"
        out.error(key, "recipe-steps-warmup.actor-never", warmup=critic, steps=steps)
    if rate >= updates:
        key = f"{_ACTOR}.optim.lr_warmup_steps"
        out.warn(
            key, "recipe-steps-warmup.rate-never", warmup=rate, steps=steps,
            suggested=max(1, updates // 20),
        )  # fmt: skip


def _kept(setup: Setup, out: Judgement) -> None:
    freq, steps = setup.integer("trainer.save_freq", -1), setup.steps_at_most
    if freq <= 0:
        raise NotApplicable("save_freq is off: no checkpoint is written")
    written = steps // freq if steps is not None else None
    roles = ("actor", "critic") if setup.critic else ("actor",)
    counts = {role: setup.get(f"trainer.max_{role}_ckpt_to_keep") for role in roles}
    for role, kept in counts.items():
        key = f"trainer.max_{role}_ckpt_to_keep"
        out.show(
            f"max_{role}_ckpt_to_keep {kept}; written {written if written is not None else '?'}"
        )
        if kept is None and (written is None or written > 3):
            if written and setup.steps is not None:
                out.warn(
                    key, "recipe-steps-checkpoints-kept.all", count=written, role=role, setting=key
                )
            else:
                out.warn(key, "recipe-steps-checkpoints-kept.unlimited", role=role, setting=key)


def _timeout(setup: Setup, out: Judgement) -> None:
    key = "actor_rollout_ref.nccl_timeout"
    timeout = setup.integer(key)
    if on_cpu(setup) or timeout <= 0:
        raise NotApplicable("no GPU, or no timeout of collectives")
    tflops, model = setup.known.bf16_tflops, setup.model
    if tflops is None:
        raise Undecided(NO_GPU)
    counts = model.parameters() if model is not None else None
    if model is None or counts is None:
        raise Undecided("the model's shape is unknown (--model-config)")
    seconds = update_compute(setup, model, counts).seconds(setup.world, tflops)
    out.show(
        f"a mini batch at the length limit: at least {seconds:,.0f} s at the full {tflops:g} "
        f"TFLOPS <= nccl_timeout {timeout:,} s"
    )
    if seconds > timeout:
        out.warn(
            key, "recipe-steps-timeout.too-short", seconds=seconds, timeout=timeout,
            suggested=-(-int(3 * seconds) // 600) * 600,
        )  # fmt: skip


_CUTS = {
    "left": "recipe-data-truncation.cut-left",
    "right": "recipe-data-truncation.cut-right",
    "middle": "recipe-data-truncation.cut-middle",
}


def _truncation(setup: Setup, out: Judgement) -> None:
    policy = str(setup.get("data.truncation", "error"))
    filtered = bool(setup.get("data.filter_overlong_prompts", False))
    out.show(f"filter_overlong_prompts {filtered}, truncation {policy}")
    if filtered:
        return
    if policy in _CUTS:
        out.note("data.truncation", _CUTS[policy], limit=setup.prompt)
    elif policy == "error":
        out.warn("data.truncation", "recipe-data-truncation.job-ends", limit=setup.prompt)


RULES = (
    Rule("recipe-steps-epoch", Source("trainer/ppo/v1/trainer_base.py", "drop_last=True,"), _epoch),
    Rule(
        "recipe-steps-end",
        Source("trainer/ppo/v1/trainer_base.py", "is_last_step = self.global_steps >="),
        _end,
    ),
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
        "recipe-steps-warmup",
        Source(
            "trainer/ppo/v1/trainer_base.py", "self.config.trainer.critic_warmup <= self.global"
        ),
        _warmup,
    ),
    Rule(
        "recipe-steps-timeout",
        Source("trainer/config/ppo_trainer.yaml", "nccl_timeout: 600"),
        _timeout,
    ),
    Rule(
        "recipe-data-truncation",
        Source("utils/dataset/rl_dataset.py", "self.truncation"),
        _truncation,
    ),
)
