"""The symbols for which verl and vLLM offer no extension point, replaced one by one.

Each function is called only after its bridge's assertion held (``reprise_plugins.bridges``).
"""

import functools
import importlib
import importlib.util
from typing import Any

from reprise_plugins.post_import import after_import


def process_group() -> None:
    """Start process groups on "cpu:gloo" where verl would say "cpu:gloo,cpu:gloo"."""
    module: Any = importlib.import_module("verl.utils.distributed")
    original = module.initialize_global_process_group_ray

    @functools.wraps(original)
    def initialize(timeout_second: int | None = None, backend: str | None = None) -> Any:
        return original(timeout_second=timeout_second, backend=backend or "cpu:gloo")

    module.initialize_global_process_group_ray = initialize


def padding() -> None:
    """Use verl's pure-torch padding helpers where flash-attn is missing."""
    if importlib.util.find_spec("flash_attn") is not None:
        return
    module: Any = importlib.import_module("verl.utils.attention_utils")

    def torch_functions() -> tuple[Any, ...]:
        helpers = importlib.import_module("verl.utils.npu_flash_attn_utils")
        names = ("index_first_axis", "pad_input", "rearrange", "unpad_input")
        return tuple(getattr(helpers, name) for name in names)

    module._get_attention_functions = torch_functions


def fused_moe_name() -> None:
    """Give vLLM's MoE module the class name that verl's FP8 helper imports from it.

    The class has no instance, so verl's ``isinstance`` tests answer "not an FP8 expert layer".
    """

    def add(module: Any) -> None:
        module.FusedMoE = type("FusedMoE", (), {"__module__": __name__})

    after_import("vllm.model_executor.layers.fused_moe.layer", add)
