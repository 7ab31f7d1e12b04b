"""verl's FSDP engine, registered for a CPU, and for Hy3 on any device.

verl chooses an engine from ``EngineRegistry`` by model type, backend, device and vendor. This
module registers subclasses there; nothing of verl is replaced. It is imported by

* ``actor_rollout_ref.model.external_lib=reprise_plugins.engine`` (and ``critic.model...``) on a
  CPU: verl then finds an engine for device "cpu", which it has none for;
* ``REPRISE_BRIDGES=hy_v3_names`` on a GPU, where ``VERL_ENGINE_VENDOR=reprise`` selects it.
"""

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from verl.utils.device import get_device_name
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import (
    FSDPEngineWithLMHead,
    FSDPEngineWithValueHead,
)

from reprise_plugins import hy_v3
from reprise_plugins.bridges import BY_NAME

if TYPE_CHECKING:
    import torch

#: The value of VERL_ENGINE_VENDOR that selects these engines on a GPU.
VENDOR = "reprise"

BACKENDS = ["fsdp", "fsdp2"]


class _Bridged:
    """The two overrides, mixed in before one of verl's FSDP engines."""

    engine_config: Any
    model_config: Any

    def _build_fsdp_module(self, module: "torch.nn.Module") -> "torch.nn.Module":
        """Shard the module, without the offload to pinned host memory that a CPU cannot pin.

        verl gives every forward-only (reference) model ``CPUOffloadPolicy(pin_memory=True)``. On a
        CPU the weights are in host memory already, so the offload is switched off by handing the
        parent a copy of the settings that asks for none.
        """
        if get_device_name() != "cpu":
            return super()._build_fsdp_module(module)  # type: ignore[misc]
        wanted = self.engine_config
        plain = copy.copy(wanted)
        # verl's config classes freeze their fields against __setattr__; this is our own copy.
        plain.__dict__.update(forward_only=False, offload_policy=False)
        self.engine_config = plain
        try:
            return super()._build_fsdp_module(module)  # type: ignore[misc]
        finally:
            self.engine_config = wanted

    def get_per_tensor_param(
        self, *args: Any, **kwargs: Any
    ) -> "tuple[Iterable[tuple[str, torch.Tensor]], dict[str, Any] | None]":
        """Return the weights for the rollout engine, those of Hy3 under their checkpoint names."""
        weights, peft_config = super().get_per_tensor_param(*args, **kwargs)  # type: ignore[misc]
        if getattr(self.model_config.hf_config, "model_type", None) == hy_v3.MODEL_TYPE:
            weights = hy_v3.checkpoint_weights(weights)
        return weights, peft_config


BY_NAME["engine"].require()


@EngineRegistry.register(model_type="language_model", backend=BACKENDS, device="cpu")
@EngineRegistry.register(
    model_type="language_model", backend=BACKENDS, device="cuda", vendor=VENDOR
)
class BridgedLanguageModelEngine(_Bridged, FSDPEngineWithLMHead):
    """FSDP engine of actor and reference."""


@EngineRegistry.register(model_type="value_model", backend=BACKENDS, device="cpu")
class BridgedValueModelEngine(_Bridged, FSDPEngineWithValueHead):
    """FSDP engine of the critic. Its weights never go to the rollout engine."""
