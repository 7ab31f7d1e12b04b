"""Time of the training part of a step, by layout: compute, overhead of layers, pipeline bubble.

Seconds of one GPU in one pass over a micro batch of `t` tokens through `L` layers:

    L x passes / 3 x (LAYER + TOKENS x t / 8192)  +  FLOPs / (peak x SHARE)

The three constants are fitted to the twenty training steps that were timed on one H200 (ten sizes
of 0.08 to 6.4 thousand million parameters with Megatron-LM, with and without recomputation:
benchmarks/gpu/measured.json, docs/gpu.md); a test fits them again. Not measured, and not in the
time: communication, offload, generation. What a layout sends is counted in bytes instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from reprise.recipe.model import Model, Parameters
from reprise.recipe.plan.time import forward_compute, update_passes
from reprise.recipe.setup import Setup

__all__ = ["ERROR", "LAYER", "MODEL_OF_TIME", "SHARE", "TOKENS", "Estimate", "estimate"]

LAYER = 0.0600
"""Seconds of a layer in a forward and a backward pass, whatever its size."""
TOKENS = 0.0346
"""Seconds on top for each 8192 tokens of a micro batch."""
SHARE = 0.3226
"""Share of the dense bfloat16 peak: 989 TFLOPS of an H200 SXM (NVIDIA's 1,979: with sparsity)."""
MEASURED_TOKENS = 8192
ERROR = {"fit_median": 0.11, "fit_worst": 0.28, "left_out_median": 0.14, "left_out_worst": 0.65}
"""Relative errors on the measured steps; `left_out`: of a size by a fit to the others alone."""
MODEL_OF_TIME = (
    f"training part of a step at the length limit: compute at {SHARE:.0%} of the peak, an overhead "
    "of each layer, the pipeline's bubble; fitted to 20 steps on one H200, off by "
    f"{ERROR['fit_median']:.0%} in the median and {ERROR['fit_worst']:.0%} at worst "
    f"({ERROR['left_out_median']:.0%} and {ERROR['left_out_worst']:.0%} on sizes left out of the "
    "fit); generation, communication and offload are not in it"
)

_ACTOR = "actor_rollout_ref.actor"
_BF16 = 2


@dataclass(frozen=True, slots=True)
class Estimate:
    """`seconds` of the training part of a step; `sent` bytes that a GPU sends in that time."""

    seconds: float
    sent: float
    micro_batches: int


def estimate(setup: Setup, model: Model, counts: Parameters, tflops: float) -> Estimate | None:
    """The training part of a step: update and log-probs. `tflops` is the GPU's dense bfloat16 peak.

    None where the layout does not divide the GPUs, and for engines other than Megatron-LM.
    """
    if not setup.megatron or not setup.dp or not setup.length:
        return None
    samples = setup.train_batch * setup.n
    budget = setup.integer(f"{_ACTOR}.ppo_max_token_len_per_gpu")
    if not setup.dynamic or budget < 1 or not samples:
        return None
    tokens = samples * setup.length / setup.dp
    updates = max(1, setup.train_batch // max(1, setup.mini_batch))
    # Whole sequences are packed into a micro batch.
    held = max(1, budget * setup.cp // setup.length)
    batches = max(updates, ceil(samples / setup.dp / held))
    bubble = 1 + (setup.pp - 1) / max(1, batches / updates)
    passes = update_passes(setup) + 1 + (1 if setup.reference else 0)
    compute = forward_compute(model, counts, samples, setup.length).total * passes
    layers = counts.layers / setup.pp
    at_work = tokens / setup.cp / batches
    overhead = batches * layers * passes / 3 * (LAYER + TOKENS * at_work / MEASURED_TOKENS)
    seconds = (compute / (setup.world * tflops * 1e12 * SHARE) + overhead) * bubble
    return Estimate(seconds, _sent(setup, model, counts, tokens / setup.cp, passes), batches)


def _sent(setup: Setup, model: Model, counts: Parameters, tokens: float, passes: int) -> float:
    """Bytes that one GPU sends in a step: tensor, context, expert and data parallel groups.

    A forward pass of a layer gathers and scatters its input twice over TP, passes its keys and
    values round the CP ring, and sends each token to its experts and back; a backward pass does it
    twice. Gradients and weights go round the data parallel group once each.
    """
    hidden, layers = model.hidden or 0, counts.layers / setup.pp
    of = tokens * _BF16 * passes
    tensor = 4 * hidden * of * layers * (setup.tp - 1) / setup.tp
    keys = 2 * (model.kv_heads or 0) * (model.head_dim or 0) / setup.tp
    context = keys * of * layers * (setup.cp - 1)
    sparse = counts.sparse_layers / setup.pp
    share = (setup.ep * setup.etp - 1) / (setup.ep * setup.etp)
    experts = 2 * counts.experts_per_token * hidden * of / setup.tp * sparse * share
    stage = 2 * hidden * of / setup.tp * (setup.pp > 1)
    own = counts.total / (setup.tp * setup.pp)
    ranks = max(1, setup.world // (setup.tp * setup.pp))
    updates = max(1, setup.train_batch // max(1, setup.mini_batch))
    data = 2 * own * _BF16 * updates * (ranks - 1) / ranks
    return tensor + context + experts + stage + data
