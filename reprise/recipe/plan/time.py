"""Compute of the training of one step: matrix products and causal attention, in FLOPs."""

from __future__ import annotations

from dataclasses import dataclass

from reprise.recipe.model import Model, Parameters
from reprise.recipe.setup import Setup

__all__ = [
    "MFU",
    "Compute",
    "forward_compute",
    "step_compute",
    "update_compute",
    "update_passes",
]

# Assumed share of the peak that large MoE training reaches, for the lower bound of a step.
MFU = 0.35
_FORWARD, _BACKWARD = 1, 2


@dataclass(frozen=True, slots=True)
class Compute:
    """FLOPs of the products with weights, and of the attention scores and their values."""

    weights: float
    attention: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.weights + self.attention

    def seconds(self, gpus: int, tflops: float, share: float = 1.0) -> float:
        """Time on `gpus` of `tflops` (dense bfloat16), at a `share` of that peak."""
        return self.total / (gpus * tflops * 1e12 * share)


def forward_compute(model: Model, counts: Parameters, sequences: int, length: int) -> Compute:
    """One pass of `sequences` of `length` tokens.

    2 FLOPs a weight and token. Scores and values take 2 x 2 x length^2 x heads x width of a head
    in each layer, of which the causal mask leaves half: as verl's own counter has it
    (verl/utils/flops_counter.py: 6 x length^2 x heads x width for a forward and a backward pass).
    """
    tokens = sequences * length
    width = (model.heads or 0) * (model.head_dim or 0)
    attention = 2.0 * sequences * length**2 * width * counts.layers
    return Compute(2.0 * counts.active * tokens, attention)


def _passes(compute: Compute, number: int) -> Compute:
    return Compute(number * compute.weights, number * compute.attention)


def update_passes(setup: Setup) -> int:
    """Forward passes that an update is worth: one, two for gradients, one if recomputed."""
    again = setup.override.get("recompute_granularity") == "full" or (
        not setup.megatron
        and bool(setup.get("actor_rollout_ref.model.enable_gradient_checkpointing", True))
    )
    return _FORWARD + _BACKWARD + (_FORWARD if again else 0)


def step_compute(setup: Setup, model: Model, counts: Parameters) -> Compute:
    """Training of a step at the length limit: update, log-probs of actor and reference, critic."""
    samples = setup.train_batch * setup.n
    passes = update_passes(setup) + 1 + (1 if setup.reference else 0)
    passes += update_passes(setup) + 1 if setup.critic else 0  # its own update, and its values
    return _passes(forward_compute(model, counts, samples, setup.length), passes)


def update_compute(setup: Setup, model: Model, counts: Parameters) -> Compute:
    """The actor's update of one mini batch, every answer at the length limit."""
    samples = setup.mini_batch * setup.n
    return _passes(forward_compute(model, counts, samples, setup.length), update_passes(setup))
