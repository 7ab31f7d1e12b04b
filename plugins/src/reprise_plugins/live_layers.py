"""vLLM layers for a CPU that compute on their live weights.

vLLM's CPU backend packs weights for oneDNN or its grouped GEMM after loading and drops or replaces
the originals, so verl's weight sync finds nothing to write to. The layers below replace vLLM's
through its out-of-tree registry (``PluggableLayer.register_oot``, ``CustomOp.register_oot``), keep
the parameters as they are, and compute with ``row_linear``.
"""

import weakref
from typing import Any

import torch
from vllm.model_executor.custom_op import CustomOp, PluggableLayer, op_registry_oot
from vllm.model_executor.layers import linear as vllm_linear
from vllm.model_executor.layers import vocab_parallel_embedding as vllm_embedding
from vllm.model_executor.layers.fused_moe import cpu_fused_moe
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend
from vllm.model_executor.layers.fused_moe.router import gate_linear as vllm_gate
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import (
    UnquantizedFusedMoEMethod,
)

from reprise_plugins.row_linear import row_linear, whole_blocks

#: torch's elementwise kernels take at most 32 numbers at a time (two AVX-512 registers of float32).
ROUTING_ROWS = 32


class LiveLinearMethod(vllm_linear.UnquantizedLinearMethod):
    """Unquantized linear layer without packing."""

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Leave the weights as they are."""

    def apply(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Compute on the layer's present weight."""
        return row_linear(x, layer.weight, bias)


class LiveEmbeddingMethod(vllm_embedding.UnquantizedEmbeddingMethod):
    """Unquantized embedding and output head without packing."""

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Leave the weights as they are."""

    def apply(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Compute logits on the layer's present weight."""
        return row_linear(x, layer.weight, bias)


class LiveExperts(cpu_fused_moe.CPUFusedMOE):
    """vLLM's expert-by-expert path, each expert a view of the live stacked weight."""

    def __call__(  # noqa: PLR0913, PLR0917 (vLLM's signature)
        self,
        layer: torch.nn.Module,
        x: torch.Tensor,
        use_grouped_topk: bool,
        top_k: int,
        router_logits: torch.Tensor,
        renormalize: bool,
        topk_group: int | None = None,
        num_expert_group: int | None = None,
        global_num_experts: int = -1,
        expert_map: torch.Tensor | None = None,
        custom_routing_function: Any = None,
        scoring_func: str = "softmax",
        routed_scaling_factor: float = 1.0,
        e_score_correction_bias: torch.Tensor | None = None,
        apply_router_weight_on_input: bool = False,
        activation: Any = MoEActivation.SILU,
    ) -> torch.Tensor:
        """Route and compute: x [tokens, hidden], router_logits [tokens, experts].

        The parent's signature (vLLM passes by position) and its two steps, but the routing sees
        whole blocks of rows: torch computes a sigmoid or exponential differently in the last,
        incomplete stretch of a vector, which would make a token's weights depend on the batch.
        """
        count = x.shape[0]
        weights, ids = cpu_fused_moe.select_experts(
            hidden_states=whole_blocks(x, ROUTING_ROWS),
            router_logits=whole_blocks(router_logits, ROUTING_ROWS),
            use_grouped_topk=use_grouped_topk,
            top_k=top_k,
            renormalize=renormalize,
            topk_group=topk_group,
            num_expert_group=num_expert_group,
            custom_routing_function=custom_routing_function,
            scoring_func=scoring_func,
            routed_scaling_factor=routed_scaling_factor,
            e_score_correction_bias=e_score_correction_bias,
        )
        result: torch.Tensor = self.forward_torch(
            layer,
            x,
            weights[:count],
            ids[:count],
            activation,
            global_num_experts,
            apply_router_weight_on_input,
        )
        return result

    def _pad_moe_intermediate_for_grouped_gemm(self, layer: torch.nn.Module) -> None:
        """Do not pad: padding replaces the parameters."""

    def check_grouped_gemm(self, layer: torch.nn.Module) -> tuple[bool, str]:
        """Refuse the grouped GEMM, which packs the weights (and on AMX raises for float32)."""
        return False, "none"

    def init_moe_torch(self, layer: torch.nn.Module) -> None:
        """Hand vLLM's loop over experts one function an expert."""
        layer.gate_up_linear = _per_expert(layer, "w13_weight", "w13_bias")
        layer.down_linear = _per_expert(layer, "w2_weight", "w2_bias")
        # vLLM's operator finds the layer by id, since an operator takes tensors and numbers only.
        cpu_fused_moe._CPU_MOE_LAYER_CACHE[id(layer)] = weakref.ref(layer)


def _per_expert(layer: torch.nn.Module, weight: str, bias: str) -> list[Any]:
    stacked, biases = getattr(layer, weight), getattr(layer, bias, None)
    return [
        lambda x, w=stacked[i], b=None if biases is None else biases[i]: row_linear(x, w, b)
        for i in range(stacked.size(0))
    ]


class LiveFusedMoEMethod(UnquantizedFusedMoEMethod):
    """Unquantized experts without packing."""

    def process_weights_after_loading(self, layer: Any) -> None:
        """Keep the weights; choose the expert-by-expert path."""
        if self.unquantized_backend != UnquantizedMoeBackend.CPU:
            super().process_weights_after_loading(layer)
            return
        FusedMoEMethodBase.process_weights_after_loading(self, layer)
        self.cpu_fused_moe = LiveExperts(layer)


def _live(base: Any, stock: type, live: Any) -> type:
    """Return a subclass of a vLLM layer that swaps its method once the stock one has set it up.

    After, not before: vLLM picks the weight loader by the class name of the method.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        base.__init__(self, *args, **kwargs)
        if type(self.quant_method) is stock:
            self.quant_method = live()

    return type(f"Live{base.__name__}", (base,), {"__init__": __init__, "__module__": __name__})


LINEAR_LAYERS = (
    vllm_linear.ReplicatedLinear,
    vllm_linear.ColumnParallelLinear,
    vllm_linear.MergedColumnParallelLinear,
    vllm_linear.QKVParallelLinear,
    vllm_linear.RowParallelLinear,
    vllm_gate.GateLinear,
)
EMBEDDING_LAYERS = (vllm_embedding.VocabParallelEmbedding, vllm_embedding.ParallelLMHead)


def register() -> None:
    """Put the layers into vLLM's out-of-tree registry. Does nothing the second time."""
    if LINEAR_LAYERS[0].__name__ in op_registry_oot:
        return
    for base in LINEAR_LAYERS:
        stock, live = vllm_linear.UnquantizedLinearMethod, LiveLinearMethod
        PluggableLayer.register_oot(name=base.__name__)(_live(base, stock, live))
    for base in EMBEDDING_LAYERS:
        stock, live = vllm_embedding.UnquantizedEmbeddingMethod, LiveEmbeddingMethod
        PluggableLayer.register_oot(name=base.__name__)(_live(base, stock, live))
    CustomOp.register_oot(name=UnquantizedFusedMoEMethod.__name__)(LiveFusedMoEMethod)
