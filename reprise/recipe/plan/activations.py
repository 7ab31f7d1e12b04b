"""Memory of one layer's activations and of the logits, as measured on a card (docs/gpu.md).

Element counts follow what each implementation keeps for its backward pass; both were fitted to
seven sizes of Hy3's shape on one H200 and are within 6 % of what a layer takes there.
"""

from __future__ import annotations

from math import ceil

from reprise.recipe.model import Model, Parameters
from reprise.recipe.setup import Setup

__all__ = ["attention_splits", "logits", "megatron_layer", "moe_workspace", "transformers_layer"]

_BF16, _FP32 = 2, 4
# FlashAttention 3 on an H100 or H200: rows of a tile, and what works on them side by side.
_TILE, _MULTIPROCESSORS = 128, 132


def _widths(model: Model) -> tuple[int, int, int]:
    """Hidden width, and those of all query and of all key heads."""
    head_dim = model.head_dim or 0
    return model.hidden or 0, (model.heads or 0) * head_dim, (model.kv_heads or 0) * head_dim


def _expert_width(model: Model) -> int:
    return int(model.config.get("moe_intermediate_size") or 0)


def megatron_layer(
    setup: Setup, model: Model, counts: Parameters, tokens: int, sequence_split: int
) -> int:
    """Bytes that one Megatron layer keeps for its backward pass, of the layer with most of it.

    `tokens` of one rank; `sequence_split` ranks share what lies between the parallel regions.
    Attention: both inputs and norm outputs, queries and keys before and after their norms, values
    and the output of the scores; a routed token: its copy, and three widths of its expert.
    """
    hidden, query, key = _widths(model)
    attention = 4 * hidden // sequence_split + 3 * (query + key) // setup.tp
    dense = 3 * int(model.config.get("intermediate_size") or 0) // setup.tp
    mlp = dense if counts.dense_layers else 0
    if counts.sparse_layers:
        width = _expert_width(model)
        sent = counts.experts_per_token * (hidden + 3 * width) // setup.etp
        shared = counts.shared_layer // max(1, hidden) // setup.tp
        share = setup.etp if sequence_split > 1 else 1
        mlp = max(mlp, sent // sequence_split * share + shared)
    return tokens * (attention + mlp) * _BF16


def transformers_layer(model: Model, counts: Parameters, tokens: int) -> int:
    """Bytes that one layer of transformers' own model keeps, of the layer with most of it.

    Its norms compute in float32, and an expert keeps every step between its products.
    """
    hidden, query, key = _widths(model)
    mlp = 4 * int(model.config.get("intermediate_size") or 0) if counts.dense_layers else 0
    if counts.sparse_layers:
        width = _expert_width(model)
        sent = counts.experts_per_token * (2 * hidden + 4 * width)
        mlp = max(mlp, sent + 4 * counts.shared_layer // max(1, 3 * hidden))
    return tokens * (8 * hidden + 3 * query + 6 * key + mlp) * _BF16


def logits(setup: Setup, model: Model, tokens: int) -> int:
    """Logits and their gradient in float32; a fused kernel holds one chunk of them at a time."""
    vocab = (model.vocab or 0) // setup.tp
    if setup.get("actor_rollout_ref.model.use_fused_kernels"):
        tokens = min(tokens, 1024)
    whole = 2 * tokens * vocab * _FP32
    # FSDP's path keeps the model's own bfloat16 logits beside them.
    return whole if setup.megatron else whole + tokens * vocab * _BF16


def attention_splits(heads: int, kv_heads: int, query: int) -> int:
    """Over how many parts of the keys FlashAttention 3 spreads a batch with queries of `query`.

    Few heads in tiles of 128 rows do not fill a card (132 multiprocessors, H100 and H200): then it
    takes the fewest parts that fill it nearly as well as possible, as its hopper/heuristics.h says.
    """
    tiles = kv_heads * ceil(query * heads / kv_heads / _TILE)
    blocks = ceil(query / _TILE)
    if tiles >= 0.8 * _MULTIPROCESSORS or blocks <= 4:
        return 1
    waves = [tiles * parts / _MULTIPROCESSORS for parts in range(1, blocks + 1)]
    filled = [wave / ceil(wave) for wave in waves]
    return 1 + next(i for i, share in enumerate(filled) if share >= 0.85 * max(filled))


def moe_workspace(model: Model, counts: Parameters, tokens: int, tp: int, query: int) -> int:
    """What vLLM needs for a batch of `tokens`: kept buffers of its experts, and a layer at work.

    `query` is the longest prompt. The widths are those of nineteen batches of 4096 to 32768 tokens
    on an H200 (docs/gpu.md). Where attention is split over the keys, every part but the first has
    a float32 result of its own beside them. Without experts 8 hidden widths: not measured.
    """
    hidden = model.hidden or 0
    heads, kv_heads = (max((count or 1) // tp, 1) for count in (model.heads, model.kv_heads))
    parts = attention_splits(heads, kv_heads, query) - 1
    split = tokens * parts * heads * (model.head_dim or 0) * _FP32
    if not counts.sparse_layers:
        return 8 * tokens * hidden * _BF16 + split
    routed = counts.experts_per_token * (hidden + 2 * _expert_width(model) // tp)
    return int(tokens * (routed + 15.75 * hidden)) * _BF16 + split
