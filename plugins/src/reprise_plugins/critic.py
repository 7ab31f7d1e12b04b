"""verl's FSDP engine for a critic that transformers has no class for, or without flash-attn.

verl loads a critic (model type ``value_model``) as transformers' token classifier of the model's
type with ``attn_implementation="flash_attention_2"``, or with trl where there is no such class. A
CPU has no flash-attn, and transformers has no token classifier of Hy3. So this module registers one
with transformers, and with verl an engine that loads it like any other model, with the attention
that the configuration names.

``critic.model._target_=reprise_plugins.critic.CriticModel`` plugs it in, and on a GPU
``VERL_ENGINE_VENDOR=reprise`` beside it. ``critic.model.external_lib`` would not do: verl builds
the critic's settings in its driver, imports the module there, and sends the finished object to the
workers. An object of a class of ours brings its module along.
"""

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformers import AutoModelForTokenClassification
from transformers.modeling_layers import GenericForTokenClassification
from transformers.models.hy_v3.configuration_hy_v3 import HYV3Config
from transformers.models.hy_v3.modeling_hy_v3 import HYV3PreTrainedModel
from verl.workers.config import HFModelConfig
from verl.workers.engine.base import EngineRegistry

from reprise_plugins.bridges import BY_NAME
from reprise_plugins.engine import BACKENDS, VENDOR, BridgedValueModelEngine

if TYPE_CHECKING:
    import torch

BY_NAME["critic"].require()


@dataclass
class CriticModel(HFModelConfig):
    """verl's settings of a model; what unpickles one has imported this module."""


class HYV3ForTokenClassification(GenericForTokenClassification, HYV3PreTrainedModel):
    """Hy3 with one linear layer over the last hidden states, as transformers has it for Qwen3."""


AutoModelForTokenClassification.register(HYV3Config, HYV3ForTokenClassification, exist_ok=True)


@EngineRegistry.register(model_type="value_model", backend=BACKENDS, device="cpu", vendor="cpu")
@EngineRegistry.register(model_type="value_model", backend=BACKENDS, device="cuda", vendor=VENDOR)
class CriticEngine(BridgedValueModelEngine):
    """FSDP engine of a critic whose value is the output of a token classifier with one label."""

    def _build_module(self) -> "torch.nn.Module":
        """Load the token classifier through verl's own loader of language models.

        That one chooses transformers' class by the name of the architecture and leaves the
        attention to the configuration; both are given to it in a copy of the model's settings.
        """
        wanted = self.model_config
        settings = copy.deepcopy(wanted.hf_config)
        (architecture,) = settings.architectures
        settings.architectures = [architecture.replace("ForCausalLM", "ForTokenClassification")]
        settings.num_labels = 1
        settings.classifier_dropout = 0.0
        plain = copy.copy(wanted)
        # verl's config classes freeze their fields against __setattr__; this is our own copy.
        plain.__dict__.update(model_type="language_model", hf_config=settings)
        self.model_config = plain
        try:
            return super()._build_module()
        finally:
            self.model_config = wanted
