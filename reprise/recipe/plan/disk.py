"""The disk that the checkpoints of a run need."""

from __future__ import annotations

from dataclasses import dataclass

from reprise.recipe.plan.critic import with_critic_on_disk
from reprise.recipe.plan.memory import Memory, checkpoint_bytes
from reprise.recipe.setup import Setup

__all__ = ["CheckpointDisk", "checkpoint_disk"]


@dataclass(frozen=True, slots=True)
class CheckpointDisk:
    """Checkpoints of a run: bytes of one by term, and how many there are.

    `written` over the whole run, `held` at its end, `peak` at the fullest moment; None where the
    number of steps is unknown and decides it.
    """

    each: Memory
    written: int | None
    held: int | None
    peak: int | None


def checkpoint_disk(setup: Setup) -> CheckpointDisk:
    """What the checkpoints of a run need. Raises Undecided where the model's shape is unknown."""
    each = with_critic_on_disk(setup, checkpoint_bytes(setup))
    freq, steps = setup.integer("trainer.save_freq", -1), setup.steps
    if freq <= 0:
        return CheckpointDisk(each, 0, 0, 0)
    if steps is None:
        return CheckpointDisk(each, None, None, None)
    kept = setup.get("trainer.max_actor_ckpt_to_keep")
    # The last step has a checkpoint of its own, unless the epochs end before it.
    written = steps // freq + bool(steps % freq and setup.last_step)
    held = min(written, kept) if isinstance(kept, int) and kept > 0 else written
    # verl deletes before it saves; only the very last one is kept until the new one is complete
    # (verl/utils/checkpoint/checkpoint_manager.py: ensure_checkpoint_capacity).
    return CheckpointDisk(each, written, held, 2 if held == 1 and written > 1 else held)
