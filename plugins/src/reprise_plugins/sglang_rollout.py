"""The agent loop manager whose samples are seeded one by one, for SGLang.

``++actor_rollout_ref.rollout.agent.agent_loop_manager_class=``
``reprise_plugins.sglang_rollout.SeededAgentLoopManager`` plugs it in; ``REPRISE_SEED`` is the run's
seed. SGLang calls a sample's seed ``sampling_seed``, refuses ``seed``, and reads it only with
``engine_kwargs.sglang.enable_deterministic_inference``.
"""

from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ

from reprise_plugins.bridges import BY_NAME
from reprise_plugins.rollout import _PlainWorker, run_seed
from reprise_plugins.seeds import sample_seed

BY_NAME["seeds-sglang"].require()


class SeededWorker(_PlainWorker):
    """verl's worker, which gives each sample of a prompt a seed of its own."""

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: dict[str, Any], **kwargs: Any
    ) -> Any:
        seed = run_seed()
        if seed is not None:
            sampling_params = {
                **sampling_params,
                "sampling_seed": sample_seed(
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
