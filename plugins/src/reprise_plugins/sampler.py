"""A replay buffer that polls often and hands samples over in a fixed order.

``trainer.v1.sampler.custom_sampler.path=pkg://reprise_plugins.sampler`` and
``trainer.v1.sampler.custom_sampler.name=FastReplayBuffer`` plug it in. The ``pkg://`` form is an
import, so it resolves in a Ray job whatever its working folder is.
"""

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from reprise_plugins.bridges import BY_NAME
from reprise_plugins.order import stable_order

#: Seconds between two looks at the queue. verl's default of 2 s is up to half a step here.
POLL_SECONDS = 0.05

BY_NAME["sampler"].require()


class FastReplayBuffer(ReplayBuffer):
    """verl's synchronous replay buffer, polled every 50 ms, with a stable sample order.

    ``trainer.v1.sampler.sampler_kwargs.poll_interval`` sets another interval (seconds). Raises
    ``ValueError`` in any trainer mode but "sync", whose policy it inherits.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        chosen = kwargs.get("sampler_kwargs") or {}
        kwargs["poll_interval"] = float(chosen.get("poll_interval", POLL_SECONDS))
        super().__init__(*args, **kwargs)
        if self.trainer_mode != "sync":
            raise ValueError(
                f"FastReplayBuffer is for trainer.v1.trainer_mode=sync, found {self.trainer_mode}; "
                "remove trainer.v1.sampler.custom_sampler"
            )

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, Any]:
        """Return verl's batch for the step, reordered, and its metrics."""
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        # The queue lists keys in the order of their first put; verl puts a batch's prompts at once.
        order = stable_order(batch.keys, list(self.prompt_global_steps[partition_id]))
        batch.keys = [batch.keys[i] for i in order]
        batch.tags = [batch.tags[i] for i in order]
        return batch, metrics
