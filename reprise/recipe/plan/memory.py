"""Memory of one GPU in training and in rollout, of a node's host, and of a checkpoint, by term.

The formulas count what the engines of verl hold at the worst stage and at the worst moment; every
number is in bytes. Activations follow measurements of the layers (activations.py). The rest are
stated constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprise.recipe.model import Model, Parameters
from reprise.recipe.plan.activations import (
    logits,
    megatron_layer,
    moe_workspace,
    transformers_layer,
)
from reprise.recipe.rules.base import Undecided
from reprise.recipe.rules.parallel import stage_layers
from reprise.recipe.rules.rollout import legal_tps
from reprise.recipe.setup import Setup

__all__ = [
    "CONTEXT_TERM",
    "GIB",
    "SERVER_BUFFERS",
    "Memory",
    "checkpoint_bytes",
    "host_bytes",
    "rollout_memory",
    "rollout_weights",
    "smallest_rollout_tp",
    "training_memory",
]

GIB = 2**30
# Memory of a process besides its tensors: measured on an H200 as 2.8 GiB with Megatron-LM and
# TransformerEngine, 1.3 GiB with FSDP. Communication buffers of many ranks and the reserve of the
# allocator come on top: both are unknown.
CONTEXT = 3 * GIB
CONTEXT_TERM = "context and buffers"
# Memory of vLLM 0.23 besides weights, activations of a batch and cache: 0.11 to 0.23 GiB on
# ten sizes on an H200 (docs/gpu.md).
SERVER_BUFFERS = int(0.13 * GIB)
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
    if setup.model is None:
        raise Undecided("the model's shape is unknown (--model-config)")
    if counts is None:
        raise Undecided(f"{setup.model.origin}: {setup.model.lacks()}")
    return setup.model, counts


def _stages(setup: Setup, counts: Parameters) -> list[_Stage]:
    sizes = stage_layers(setup, counts.layers)
    if sizes is None:
        raise Undecided("the layers do not divide over the stages: see recipe-parallel-layers")
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

    Weights, gradients and optimizer state are all on the GPU then, offloaded or not: offload
    frees the GPU for the rollout. Raises Undecided when the model is unknown.
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
    dense = max(1, (setup.dp or 1) * setup.cp)
    if setup.ep == 1:
        # Without expert parallelism Megatron counts experts as dense weights (`allreduce` of
        # megatron/core/extensions/transformer_engine.py at 0823c731; measured with TP 2).
        return dense, dense
    return dense, max(1, setup.world // (setup.etp * setup.ep * setup.pp))


def _optimizer_bytes(setup: Setup, stage: _Stage) -> int:
    dense, experts = _shards(setup)
    return _ADAM * (stage.dense // dense + stage.experts // experts)


def _offloaded_share(setup: Setup) -> float:
    """The share of the optimizer that Megatron updates on the host (optimizer_cpu_offload)."""
    node = setup.get(f"{_ACTOR}.optim.override_optimizer_config", {})
    if not isinstance(node, Mapping) or not node.get("optimizer_cpu_offload"):
        return 0.0
    return float(node.get("optimizer_offload_fraction", 1.0))


def _gradient_bytes(setup: Setup) -> int:
    """Bytes of one gradient in Megatron's buffer.

    Through Megatron-Bridge verl leaves `grad_reduce_in_fp32` at Megatron's own default, which is
    off: gradients are summed and reduced in bfloat16 (make_megatron_module in
    verl/utils/megatron_utils.py at 220e903; confirmed on a GPU).
    """
    node = f"{_ACTOR}.megatron"
    if setup.get(f"{node}.vanilla_mbridge", False):
        return _FP32
    return _FP32 if setup.get(f"{node}.override_ddp_config.grad_reduce_in_fp32") else _BF16


def _worst(held: dict[str, int], phases: list[dict[str, int]]) -> Memory:
    """What is always held, and the terms of the phase with most; those of the others are 0."""
    peak = max(phases, key=lambda phase: sum(phase.values()))
    absent = {term: 0 for phase in phases for term in phase}
    return Memory({**held, **absent, **peak, CONTEXT_TERM: CONTEXT})


def _stage_memory(
    setup: Setup, model: Model, counts: Parameters, stage: _Stage, index: int
) -> Memory:
    share = 1 - _offloaded_share(setup)
    state = _optimizer_bytes(setup, stage)
    tokens = _micro_tokens(setup)
    # One forward pass, one backward: the first stage has as many micro batches in flight as
    # there are stages after it; dynamic batches may be fewer.
    in_flight = min(setup.pp - index, _micro_batches(setup))
    split = _sequence_split(setup)
    layer_input = tokens * (model.hidden or 0) * _BF16 // split
    layer = megatron_layer(setup, model, counts, tokens, split)
    if setup.override.get("recompute_granularity") == "full":
        kept = layer_input * stage.layers * in_flight
        block = int(setup.override.get("recompute_num_layers") or 1)
        uniform = setup.override.get("recompute_method") == "uniform"
        if uniform:
            kept //= block
        working = layer * (block if uniform else 1)
    else:
        kept, working = layer * stage.layers * in_flight, 0
    gradient = _gradient_bytes(setup)
    held = {
        "weights": stage.total * _BF16,
        "gradients": stage.total * gradient,
        "optimizer": int(state * share),
    }
    # A rank turns its share of bfloat16 gradients into float32 for the step.
    step = int(state * share) * _FP32 // _ADAM if gradient != _FP32 else 0
    head = logits(setup, model, tokens) if stage.has_head else 0
    return _worst(
        held,
        [
            # The logits are gone before the backward pass reaches the layers.
            {"activations kept": kept, "activations of the layer at work": working},
            {"activations kept": kept, "logits": head},
            {"float32 gradients of the step": step},
        ],
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
    layer = transformers_layer(model, counts, tokens)
    checkpointing = bool(setup.get("actor_rollout_ref.model.enable_gradient_checkpointing", True))
    kept = (layer_input if checkpointing else layer) * counts.layers
    held = {
        "weights": total * stored // world,
        "gradients": total * stored // world,
        "optimizer": 2 * total * _FP32 // world,
    }
    return _worst(
        held,
        [
            {
                "activations kept": kept,
                # One layer's own, where they are computed again, and their gradients.
                "activations of the layer at work": layer * (2 if checkpointing else 1),
                # Its weights in bfloat16 and, whole for a moment, its gradients in float32.
                "gathered layer": biggest * (_BF16 + _FP32),
            },
            {"activations kept": kept, "logits": logits(setup, model, tokens)},
            # torch's Adam computes all square roots before it divides by any.
            {"temporaries of the step": total * stored // world},
        ],
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

    vLLM and SGLang use `gpu_memory_utilization` of the GPU; the cache gets what weights and
    activations leave. `gpu_memory` in GiB. Raises Undecided when the model is unknown.
    """
    model, counts = _parameters(setup)
    budget = int(float(setup.get(f"{_ROLLOUT}.gpu_memory_utilization", 0.5)) * gpu_memory * GIB)
    weights = rollout_weights(model, counts, setup.rollout_tp)
    tokens = setup.integer(f"{_ROLLOUT}.max_num_batched_tokens", 8192)
    query = min(setup.prompt, tokens)
    work = moe_workspace(model, counts, tokens, setup.rollout_tp, query)
    cache = max(0, budget - weights - work - SERVER_BUFFERS)
    terms = {
        "weights": weights,
        "activations of a batch": work,
        "the server's buffers": SERVER_BUFFERS,
        "KV cache": cache,
    }
    if not setup.get(f"{_ACTOR}.megatron.param_offload", False) and setup.megatron:
        stages = _stages(setup, counts)
        terms["actor weights (not offloaded)"] = max(stage.total for stage in stages) * _BF16
    if not setup.get(f"{_ACTOR}.megatron.optimizer_offload", False) and setup.megatron:
        states = [_optimizer_bytes(setup, stage) for stage in _stages(setup, counts)]
        terms["optimizer (not offloaded)"] = int(max(states) * (1 - _offloaded_share(setup)))
    return Memory(terms), cache // max(1, _kv_token(model, setup.rollout_tp))


def smallest_rollout_tp(setup: Setup, gpu_memory: float) -> int | None:
    """The smallest legal rollout TP whose weights leave room for one longest sequence.

    None when none of the legal sizes does. Raises Undecided when the model is unknown.
    """
    model, counts = _parameters(setup)
    budget = float(setup.get(f"{_ROLLOUT}.gpu_memory_utilization", 0.5)) * gpu_memory * GIB
    for size in legal_tps(setup):
        need = rollout_weights(model, counts, size) + setup.length * _kv_token(model, size)
        if need <= budget:
            return size
    return None


def host_bytes(setup: Setup) -> Memory:
    """Host memory of one node while the rollout uses the GPUs.

    Offloaded gradients are dropped, not copied. Raises Undecided when the model is unknown.
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
    """One checkpoint on disk, by save_contents."""
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
