"""Memory of one GPU in training and in rollout, of a node's host, and of a checkpoint, by term.

The formulas count what verl's engines hold at the worst stage and at the worst moment; every
figure is in bytes. Activations follow Megatron's layers with flash attention (Korthikanti et al.,
arXiv 2205.05198, without the score matrix). What no formula gives is a stated constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprise.recipe.model import Model, Parameters
from reprise.recipe.rules.base import Undecided
from reprise.recipe.rules.parallel import stage_layers
from reprise.recipe.rules.rollout import legal_tps
from reprise.recipe.setup import Setup

__all__ = [
    "CONTEXT",
    "GIB",
    "Memory",
    "checkpoint_bytes",
    "host_bytes",
    "rollout_memory",
    "rollout_weights",
    "smallest_rollout_tp",
    "training_memory",
]

GIB = 2**30
# CUDA or MUSA context, communication buffers and the allocator's slack: an assumption, not
# measured for these machines.
CONTEXT = 3 * GIB
_BF16, _FP32 = 2, 4
# float32 master weight and two moments of Adam.
_ADAM = 3 * _FP32
_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by term; `total` is their sum."""

    terms: Mapping[str, int]

    @property
    def total(self) -> int:
        """The sum of the terms."""
        return sum(self.terms.values())


@dataclass(frozen=True, slots=True)
class _Stage:
    """Parameters of one rank of one pipeline stage, the experts apart."""

    dense: int
    experts: int
    layers: int
    has_head: bool

    @property
    def total(self) -> int:
        return self.dense + self.experts


def _parameters(setup: Setup) -> tuple[Model, Parameters]:
    counts = setup.model.parameters() if setup.model is not None else None
    if setup.model is None or counts is None:
        raise Undecided("the model's shape is not known (--model-config)")
    return setup.model, counts


def _stages(setup: Setup, counts: Parameters) -> list[_Stage]:
    sizes = stage_layers(setup, counts.layers)
    if sizes is None:
        raise Undecided("the layers do not split over the stages: see recipe-parallel-layers")
    made, first = [], 0
    for index, size in enumerate(sizes):
        dense_layers = max(0, min(counts.dense_layers, first + size) - first)
        sparse = size - dense_layers
        shared = size * counts.attention_layer + dense_layers * counts.dense_mlp
        shared += sparse * counts.shared_layer
        if index == 0:
            shared += counts.embedding
        last = index == len(sizes) - 1
        if last:
            shared += counts.head
        plain = size * counts.norms_layer + sparse * counts.router_layer + last * counts.final_norm
        experts = sparse * counts.experts * counts.expert // (setup.ep * setup.etp)
        made.append(_Stage(shared // setup.tp + plain, experts, size, last))
        first += size
    return made


def training_memory(setup: Setup) -> Memory:
    """The peak of one GPU during the actor's update, at its worst pipeline stage.

    Weights, gradients and optimizer state are all on the card then, offloaded or not: offload
    empties the card for the rollout. Raises Undecided when the model is not known.
    """
    model, counts = _parameters(setup)
    if not setup.megatron:
        return _fsdp(setup, model, counts)
    stages = _stages(setup, counts)
    return max(
        (_stage_memory(setup, model, counts, stage, index) for index, stage in enumerate(stages)),
        key=lambda memory: memory.total,
    )


def _shards(setup: Setup) -> tuple[int, int]:
    """Over how many ranks the optimizer's state of dense and of expert weights is spread."""
    if not setup.get(f"{_ACTOR}.megatron.use_distributed_optimizer", True):
        return 1, 1
    expert_group = setup.etp * setup.ep * setup.pp
    return max(1, (setup.dp or 1) * setup.cp), max(1, setup.world // expert_group)


def _optimizer_bytes(setup: Setup, stage: _Stage) -> int:
    dense, experts = _shards(setup)
    return _ADAM * (stage.dense // dense + stage.experts // experts)


def _offloaded_share(setup: Setup) -> float:
    """The share of the optimizer that Megatron updates on the host (optimizer_cpu_offload)."""
    node = setup.get(f"{_ACTOR}.optim.override_optimizer_config", {})
    if not isinstance(node, Mapping) or not node.get("optimizer_cpu_offload"):
        return 0.0
    return float(node.get("optimizer_offload_fraction", 1.0))


def _stage_memory(
    setup: Setup, model: Model, counts: Parameters, stage: _Stage, index: int
) -> Memory:
    optimizer = int(_optimizer_bytes(setup, stage) * (1 - _offloaded_share(setup)))
    tokens = _micro_tokens(setup)
    # One forward pass, one backward: the first stage has as many micro batches in flight as
    # there are stages after it; dynamic batches may be fewer.
    in_flight = min(setup.pp - index, _micro_batches(setup))
    layer_input = tokens * (model.hidden or 0) * _BF16 // _sequence_split(setup)
    layer = _layer_activation(setup, model, counts, tokens)
    if setup.override.get("recompute_granularity") == "full":
        kept = layer_input * stage.layers * in_flight
        block = int(setup.override.get("recompute_num_layers") or 1)
        if setup.override.get("recompute_method") == "uniform":
            kept //= block
        working = layer * (block if setup.override.get("recompute_method") == "uniform" else 1)
    else:
        kept, working = layer * stage.layers * in_flight, 0
    return Memory(
        {
            "weights": stage.total * _BF16,
            "gradients": stage.total * _FP32,
            "optimizer": optimizer,
            "activations kept": kept,
            "activations of the layer at work": working,
            "logits": _logits(setup, model, tokens) if stage.has_head else 0,
            "context and buffers": CONTEXT,
        }
    )


def _sequence_split(setup: Setup) -> int:
    parallel = bool(setup.get(f"{_ACTOR}.megatron.sequence_parallel", True))
    return setup.tp if parallel else 1


def _micro_tokens(setup: Setup) -> int:
    """Tokens of one micro batch on one rank."""
    if setup.dynamic:
        return setup.integer(f"{_ACTOR}.ppo_max_token_len_per_gpu")
    micro = setup.integer(f"{_ACTOR}.ppo_micro_batch_size_per_gpu", 1)
    return micro * setup.length // setup.cp


def _micro_batches(setup: Setup) -> int:
    samples = setup.mini_batch * setup.n // (setup.dp or 1)
    if not setup.dynamic:
        return max(1, samples // setup.integer(f"{_ACTOR}.ppo_micro_batch_size_per_gpu", 1))
    held = max(1, _micro_tokens(setup) * setup.cp // max(1, setup.length))
    return max(1, -(-samples // held))


def _layer_activation(setup: Setup, model: Model, counts: Parameters, tokens: int) -> int:
    """What the backward pass of one layer needs, of the layer with most of it."""
    hidden, head_dim = model.hidden or 0, model.head_dim or 0
    query, key = (model.heads or 0) * head_dim, (model.kv_heads or 0) * head_dim
    split = _sequence_split(setup)
    # Norm outputs and residuals on the sequence's share; heads and MLP on the tensor's share.
    attention = 4 * hidden // split + (3 * query + 4 * key) // setup.tp
    dense = 3 * int(model.config.get("intermediate_size") or 0) // setup.tp
    mlp = dense if counts.dense_layers else 0
    if counts.sparse_layers:
        width = int(model.config.get("moe_intermediate_size") or 0)
        sent = counts.experts_per_token * (2 * hidden + 3 * width) // setup.etp
        shared = counts.shared_layer // max(1, hidden) // setup.tp
        mlp = max(mlp, sent // split * (setup.etp if split > 1 else 1) + shared)
    return tokens * (attention + 2 * hidden // split + mlp) * _BF16


def _logits(setup: Setup, model: Model, tokens: int) -> int:
    """Logits and their gradient in float32; a fused kernel holds one chunk of them at a time."""
    vocab = (model.vocab or 0) // setup.tp
    if setup.get("actor_rollout_ref.model.use_fused_kernels"):
        tokens = min(tokens, 1024)
    return 2 * tokens * vocab * _FP32


def _fsdp(setup: Setup, model: Model, counts: Parameters) -> Memory:
    """FSDP: everything is sharded over the world, and one layer is gathered at a time."""
    bytes_of = {"fp32": 4, "float32": 4}
    stored = bytes_of.get(str(setup.get(f"{_ACTOR}.fsdp_config.model_dtype", "fp32")), 2)
    total, world = counts.total, max(1, setup.world)
    biggest = max(
        counts.attention_layer + counts.norms_layer + counts.dense_mlp * bool(counts.dense_layers),
        counts.attention_layer + counts.norms_layer + counts.router_layer + counts.shared_layer
        + counts.experts * counts.expert,
        counts.embedding,
    )  # fmt: skip
    tokens = _micro_tokens(setup)
    layer_input = tokens * (model.hidden or 0) * _BF16
    layer = _layer_activation(setup, model, counts, tokens)
    checkpointing = bool(setup.get("actor_rollout_ref.model.enable_gradient_checkpointing", True))
    return Memory(
        {
            "weights": total * stored // world,
            "gradients": total * stored // world,
            "optimizer": 2 * total * _FP32 // world,
            "gathered layer": 2 * biggest * _BF16,
            "activations kept": (layer_input if checkpointing else layer) * counts.layers,
            "activations of the layer at work": layer if checkpointing else 0,
            "logits": _logits(setup, model, tokens),
            "context and buffers": CONTEXT,
        }
    )


def rollout_weights(model: Model, counts: Parameters, tp: int) -> int:
    """bf16 weights of one GPU of a rollout server: KV heads are repeated where TP exceeds them."""
    heads, kv_heads, head_dim = model.heads or 1, model.kv_heads or 1, model.head_dim or 0
    hidden = model.hidden or 0
    query = 2 * hidden * heads * head_dim // tp
    key = 2 * hidden * max(kv_heads // tp, 1) * head_dim
    split = (
        counts.embedding + counts.head + counts.dense_layers * counts.dense_mlp
        + counts.routed + counts.sparse_layers * counts.shared_layer
    )  # fmt: skip
    whole = (
        counts.layers * counts.norms_layer + counts.sparse_layers * counts.router_layer
        + counts.final_norm
    )  # fmt: skip
    return (split // tp + counts.layers * (query + key) + whole) * _BF16


def _kv_token(model: Model, tp: int) -> int:
    """Bytes of the keys and values of one token on one GPU."""
    heads = max((model.kv_heads or 1) // tp, 1)
    return 2 * (model.layers or 0) * heads * (model.head_dim or 0) * _BF16


def rollout_memory(setup: Setup, gpu_memory: float) -> tuple[Memory, int]:
    """One GPU during rollout, and the tokens that its server's KV cache holds.

    vLLM and SGLang take `gpu_memory_utilization` of the card; what weights and activations leave
    of it is the cache. `gpu_memory` in GiB. Raises Undecided when the model is not known.
    """
    model, counts = _parameters(setup)
    budget = int(float(setup.get(f"{_ROLLOUT}.gpu_memory_utilization", 0.5)) * gpu_memory * GIB)
    weights = rollout_weights(model, counts, setup.rollout_tp)
    tokens = setup.integer(f"{_ROLLOUT}.max_num_batched_tokens", 8192)
    work = 8 * tokens * (model.hidden or 0) * _BF16
    cache = max(0, budget - weights - work)
    terms = {"weights": weights, "activations of a batch": work, "KV cache": cache}
    if not setup.get(f"{_ACTOR}.megatron.param_offload", False) and setup.megatron:
        stages = _stages(setup, counts)
        terms["actor weights (not offloaded)"] = max(stage.total for stage in stages) * _BF16
    return Memory(terms), cache // max(1, _kv_token(model, setup.rollout_tp))


def smallest_rollout_tp(setup: Setup, gpu_memory: float) -> int | None:
    """The smallest legal rollout TP whose weights leave room for one longest sequence.

    None when no legal size does. Raises Undecided when the model is not known.
    """
    model, counts = _parameters(setup)
    budget = float(setup.get(f"{_ROLLOUT}.gpu_memory_utilization", 0.5)) * gpu_memory * GIB
    for size in legal_tps(setup):
        need = rollout_weights(model, counts, size) + setup.length * _kv_token(model, size)
        if need <= budget:
            return size
    return None


def host_bytes(setup: Setup) -> Memory:
    """What one node's host memory holds while the rollout has the cards.

    Offloaded gradients are dropped, not copied. Raises Undecided when the model is not known.
    """
    _, counts = _parameters(setup)
    if not setup.megatron:
        return Memory({})
    stages = _stages(setup, counts)
    terms: dict[str, int] = {}
    node = f"{_ACTOR}.megatron"
    worst = max(stage.total for stage in stages) * _BF16 * setup.gpus_per_node
    if setup.get(f"{node}.param_offload"):
        terms["actor weights"] = worst
    held = max(_optimizer_bytes(setup, stage) for stage in stages) * setup.gpus_per_node
    if setup.get(f"{node}.optimizer_offload"):
        terms["optimizer"] = held
    elif _offloaded_share(setup):
        terms["optimizer"] = int(held * _offloaded_share(setup))
    if setup.reference and setup.get("actor_rollout_ref.ref.megatron.param_offload"):
        terms["reference weights"] = worst
    return Memory(terms)


def checkpoint_bytes(setup: Setup) -> Memory:
    """One checkpoint on the disk, by what save_contents asks for."""
    _, counts = _parameters(setup)
    contents = setup.get(f"{_ACTOR}.checkpoint.save_contents", ["model", "optimizer", "extra"])
    terms: dict[str, int] = {}
    if "model" in contents:
        terms["model (bf16)"] = counts.total * _BF16
    if "hf_model" in contents:
        terms["Hugging Face copy (bf16)"] = counts.total * _BF16
    if "optimizer" in contents:
        terms["optimizer (float32 master and two moments)"] = counts.total * _ADAM
    return Memory(terms)
