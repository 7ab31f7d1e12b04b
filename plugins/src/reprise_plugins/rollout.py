"""An agent loop manager whose samples are seeded one by one.

``++actor_rollout_ref.rollout.agent.agent_loop_manager_class=``
``reprise_plugins.rollout.SeededAgentLoopManager`` plugs it in; ``REPRISE_SEED`` is the run's seed.
Without the variable it samples as verl's own manager does.
"""

import os
from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from reprise_plugins.bridges import BY_NAME
from reprise_plugins.seeds import sample_seed
from reprise_plugins.switches import SwitchError

BY_NAME["seeds"].require()


def run_seed() -> int | None:
    """Return REPRISE_SEED, or None where it is not set. Raises ``SwitchError`` if not a number."""
    text = os.environ.get("REPRISE_SEED", "").strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise SwitchError(f"REPRISE_SEED is {text!r}; expected a whole number") from None


# A Ray actor class cannot be inherited from; the plain class that it wraps can.
_PlainWorker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class


class SeededWorker(_PlainWorker):
    """verl's worker, which gives each sample of a prompt a seed of its own."""

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: dict[str, Any], **kwargs: Any
    ) -> Any:
        seed = run_seed()
        if seed is not None:
            sampling_params = {
                **sampling_params,
                "seed": sample_seed(
                    seed,
                    int(trajectory["step"]),
                    int(trajectory["sample_index"]),
                    int(kwargs["session_id"]),
                    bool(trajectory["validate"]),
                ),
            }
        return await super()._run_agent_loop(sampling_params, trajectory, **kwargs)


class SeededAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager with seeded workers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        run_seed()  # a bad value is reported here, in the trainer, not in a worker
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(SeededWorker)
