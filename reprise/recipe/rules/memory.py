"""Does it fit the GPUs: weights and cache of the rollout, peak of training."""

from __future__ import annotations

from reprise.recipe.plan.memory import GIB, rollout_memory, smallest_rollout_tp, training_memory
from reprise.recipe.rules.base import Judgement, NotApplicable, Rule, Source, Undecided
from reprise.recipe.setup import Setup

__all__ = ["NO_GPU", "RULES", "gpu_memory_of", "on_cpu"]

NO_GPU = "the GPU of the job is unknown"

_TP = "actor_rollout_ref.rollout.tensor_model_parallel_size"
_UTILIZATION = "actor_rollout_ref.rollout.gpu_memory_utilization"


def on_cpu(setup: Setup) -> bool:
    """Whether everything is in host memory, because there are no GPUs."""
    return bool(setup.get("trainer.device") == "cpu")


def gpu_memory_of(setup: Setup) -> float:
    """Memory of a GPU in GiB; raises NotApplicable on a CPU, Undecided when it is unknown."""
    if on_cpu(setup):
        raise NotApplicable("no GPU: everything is in host memory")
    if setup.known.gpu_memory is None:
        raise Undecided(NO_GPU)
    return setup.known.gpu_memory


def _rollout(setup: Setup, out: Judgement) -> None:
    gpu = gpu_memory_of(setup)
    memory, tokens = rollout_memory(setup, gpu)
    share = float(setup.get(_UTILIZATION, 0.5))
    weights = memory.terms["weights"] / GIB
    out.show(
        f"weights {weights:.1f} GiB at TP {setup.rollout_tp} <= {share:g} x {gpu:g} = "
        f"{share * gpu:.1f} GiB; the rest holds {tokens:,} tokens"
    )
    if tokens >= setup.length:
        return
    smallest = smallest_rollout_tp(setup, gpu)
    found: dict[str, object] = {
        "weights": weights,
        "tp": setup.rollout_tp,
        "tokens": tokens,
        "share": share,
        "gpu": gpu,
        "length": setup.length,
    }
    if smallest:
        out.error(_TP, "recipe-memory-rollout.too-small", smallest=smallest, **found)
    else:
        out.error(_TP, "recipe-memory-rollout.no-legal-tp", **found)


def _training(setup: Setup, out: Judgement) -> None:
    gpu = gpu_memory_of(setup)
    memory = training_memory(setup)
    terms = " + ".join(f"{name} {size / GIB:.1f}" for name, size in memory.terms.items() if size)
    out.show(f"{terms} = {memory.total / GIB:.1f} GiB <= {gpu:g} GiB")
    if memory.total / GIB > gpu:
        key = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu"
        out.warn(key, "recipe-memory-training.too-large", total=memory.total / GIB, gpu=gpu)


RULES = (
    Rule("recipe-memory-rollout", Source("reprise recipe plan: rollout terms"), _rollout),
    Rule("recipe-memory-training", Source("reprise recipe plan: training terms"), _training),
)
