"""The agent loop manager whose samples are seeded one by one, for SGLang.

``++actor_rollout_ref.rollout.agent.agent_loop_manager_class=``
``reprise_plugins.sglang_rollout.SeededAgentLoopManager`` plugs it in; ``REPRISE_SEED`` is the run's
seed. SGLang calls a sample's seed ``sampling_seed``, refuses ``seed``, and reads it only with
``engine_kwargs.sglang.enable_deterministic_inference``.
"""

from typing import Any

import ray

from reprise_plugins import rollout
from reprise_plugins.bridges import BY_NAME

BY_NAME["seeds-sglang"].require()


class _SamplingSeed(rollout._PlainWorker):
    """verl's worker, with a sample's seed under SGLang's name for it."""

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], *args: Any, **more: Any
    ) -> Any:
        names = {"seed": "sampling_seed"}
        renamed = {names.get(key, key): value for key, value in sampling_params.items()}
        return await super()._run_agent_loop(renamed, *args, **more)


class SeededWorker(rollout.SeededWorker, _SamplingSeed):
    """The seeded worker, above the one that renames the seed."""


class SeededAgentLoopManager(rollout.SeededAgentLoopManager):
    """verl's manager with these workers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(SeededWorker)
