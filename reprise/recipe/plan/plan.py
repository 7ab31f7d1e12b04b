"""What a recipe needs: memory, time, disk; and what to change where something does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprise.core.findings import Report
from reprise.recipe.check import check_values
from reprise.recipe.load import Loaded
from reprise.recipe.plan.critic import with_critic_on_card, with_critic_on_disk, with_critic_on_host
from reprise.recipe.plan.host import machine_memory
from reprise.recipe.plan.memory import (
    CONTEXT_TERM,
    GIB,
    Memory,
    checkpoint_bytes,
    host_bytes,
    rollout_memory,
    smallest_rollout_tp,
    training_memory,
)
from reprise.recipe.rules.base import Undecided
from reprise.recipe.rules.memory import on_cpu
from reprise.recipe.setup import Setup

__all__ = ["ADVICE", "MFU", "plan", "setup_of"]

# Share of the peak that large MoE training reaches: an assumption for the lower bound of a step.
MFU = 0.35
# After the out-of-memory section of the Hy3 training guide, in its order.
ADVICE = (
    "lower actor.ppo_max_token_len_per_gpu: dynamic batches are packed by it, it sets the peak",
    "set actor.ppo_micro_batch_size_per_gpu=1",
    "lower ref.log_prob_max_token_len_per_gpu and rollout.log_prob_max_token_len_per_gpu",
    "raise actor.megatron.context_parallel_size (activations) or pipeline_model_parallel_size "
    "(layers on a stage)",
)
_ROLLOUT = "actor_rollout_ref.rollout"


def setup_of(loaded: Loaded) -> Setup:
    """The sizes of a loaded recipe."""
    return Setup(loaded.composition.values, loaded.tree, loaded.model, loaded.known)


def plan(
    loaded: Loaded,
    gpu_memory: float | None = None,
    throughput: float | None = None,
    host_memory: float | None = None,
    recipes: Path | None = None,
) -> Report:
    """Terms and sums in `data`, and a finding for whatever does not fit.

    `gpu_memory` is a card's memory in GiB (the card's own by default), `throughput` tokens a
    second and GPU over a whole step, as verl reports it in perf/throughput. `host_memory` in GiB
    is that of a node (the recipe's by default; on a CPU this machine's, where it states none).
    `recipes` is the folder whose lines are named where a value is none to compute with.
    """
    report = Report("recipe plan")
    check_values(report, loaded.composition, recipes)
    if report.exit_code:
        return report
    setup = setup_of(loaded)
    memory = gpu_memory or loaded.known.gpu_memory
    host = host_memory or loaded.card.machine.host_memory
    report.data["verl"] = loaded.tree.label()
    try:
        if memory is None and on_cpu(setup):
            _on_host(report, setup, host or machine_memory())
        else:
            _training(report, setup, memory)
            _rollout(report, setup, memory)
            _host(report, setup, host)
        _disk(report, setup)
        _time(report, setup, loaded.card.machine.bf16_tflops, throughput)
    except Undecided as error:
        known = setup.model is not None and not setup.model.lacks()
        fix = "reprise recipe check explains it" if known else "give another --model-config DIR"
        report.unknown("recipe-plan-model", loaded.name, str(error), fix)
    except (TypeError, ValueError, ArithmeticError) as error:
        message = f"a value is none to compute with: {error}"
        report.unknown("recipe-plan-model", loaded.name, message, "reprise recipe check names it")
    return report


def _table(memory: Memory) -> dict[str, float]:
    """GiB by term, with the sum."""
    shown = {name: round(size / GIB, 2) for name, size in memory.terms.items()}
    return {**shown, "total": round(memory.total / GIB, 2)}


def _parameters(report: Report, setup: Setup) -> None:
    counts = setup.model.parameters() if setup.model is not None else None
    if counts is not None:
        report.data["parameters"] = {"total": counts.total, "active": counts.active}


def _on_host(report: Report, setup: Setup, host_memory: float) -> None:
    """Without a card the tensors of a host's ranks are all in its memory."""
    _parameters(report, setup)
    terms = with_critic_on_card(setup, training_memory(setup)).terms
    # What a process holds beside its tensors was seen on a card only: it says nothing here.
    rank = Memory({name: size for name, size in terms.items() if name != CONTEXT_TERM})
    report.data["training"] = _table(rank)
    report.data["host_memory"] = round(host_memory, 2)
    need = rank.total * setup.gpus_per_node / GIB
    where = "host memory"
    tensors = f"the tensors of training take {need:.2f} GiB, the host has {host_memory:.1f}"
    if need > host_memory:
        report.failed(
            "recipe-plan-host",
            where,
            tensors,
            "lower actor.ppo_micro_batch_size_per_gpu, or use a host with more memory",
        )
        return
    report.passed("recipe-plan-host")
    report.note("recipe-plan-host.card-what-processes", where, tensors=tensors)


def _training(report: Report, setup: Setup, gpu_memory: float | None) -> None:
    _parameters(report, setup)
    memory = with_critic_on_card(setup, training_memory(setup))
    report.data["training"] = _table(memory)
    if gpu_memory is None:
        report.unknown("recipe-plan-training.card-s-memory", "gpu memory")
        return
    report.data["gpu_memory"] = gpu_memory
    need = memory.total / GIB
    if need <= gpu_memory:
        report.passed("recipe-plan-training")
        return
    report.failed(
        "recipe-plan-training",
        "actor_rollout_ref.actor",
        f"{need:.1f} GiB at the worst stage, a card has {gpu_memory:g} GiB",
        "; then ".join(ADVICE),
    )


def _rollout(report: Report, setup: Setup, gpu_memory: float | None) -> None:
    if gpu_memory is None:
        return
    memory, tokens = rollout_memory(setup, gpu_memory)
    report.data["rollout"] = _table(memory)
    smallest = smallest_rollout_tp(setup, gpu_memory)
    sequences = tokens / setup.length if setup.length else 0.0
    report.data["rollout_cache"] = {
        "tokens": tokens,
        "longest_sequences": round(sequences, 1),
        "smallest_tp": smallest,
    }
    utilization = float(setup.get(f"{_ROLLOUT}.gpu_memory_utilization", 0.5))
    if smallest is not None and sequences >= 1 and memory.total <= gpu_memory * GIB:
        report.passed("recipe-plan-rollout")
        return
    key = f"{_ROLLOUT}.tensor_model_parallel_size"
    fix = f"{key}={smallest}" if smallest else "more or larger GPUs for a server"
    report.failed(
        "recipe-plan-rollout",
        key,
        f"TP {setup.rollout_tp}: weights {memory.terms['weights'] / GIB:.1f} GiB a card, of which "
        f"the engine may take {utilization:g} x {gpu_memory:g} = {utilization * gpu_memory:.1f}",
        fix,
    )


def _host(report: Report, setup: Setup, host_memory: float | None) -> None:
    memory = with_critic_on_host(setup, host_bytes(setup))
    report.data["host"] = _table(memory)
    if host_memory is None:
        report.note("recipe-plan-host.gib-node-s", "host memory", total=memory.total / GIB)
        report.passed("recipe-plan-host")
    elif memory.total / GIB <= host_memory:
        report.passed("recipe-plan-host")
    else:
        report.failed(
            "recipe-plan-host.gib-offloaded-node",
            "host memory",
            total=memory.total / GIB,
            host_memory=host_memory,
        )


def _disk(report: Report, setup: Setup) -> None:
    memory = with_critic_on_disk(setup, checkpoint_bytes(setup))
    freq, steps = setup.integer("trainer.save_freq", -1), setup.steps
    kept = setup.get("trainer.max_actor_ckpt_to_keep")
    written = -(-steps // freq) if freq > 0 and steps else 0
    held = min(written, kept) if isinstance(kept, int) and written else written
    # verl makes room before it saves; only the very last one is kept until the new one is whole
    # (verl/utils/checkpoint/checkpoint_manager.py: ensure_checkpoint_capacity).
    peak = 2 if held == 1 and written > 1 else held
    report.data["checkpoint"] = {name: round(size / 1e12, 3) for name, size in memory.terms.items()}
    report.data["disk"] = {
        "checkpoint_tb": round(memory.total / 1e12, 2),
        "written": written,
        "kept": held,
        "peak_tb": round(peak * memory.total / 1e12, 2),
        "all_tb": round(written * memory.total / 1e12, 2),
    }
    report.passed("recipe-plan-disk")


def _time(report: Report, setup: Setup, tflops: float | None, throughput: float | None) -> None:
    samples = setup.train_batch * setup.n
    longest = samples * setup.length
    counts = setup.model.parameters() if setup.model is not None else None
    data: dict[str, Any] = {"samples": samples, "tokens_at_most": longest}
    if counts is not None and tflops:
        update = 8 if setup.override.get("recompute_granularity") == "full" else 6
        passes = update + 2 + (2 if setup.reference else 0)  # log-probs: actor and reference
        passes += update + 2 if setup.critic else 0  # its own update, and its values
        flops = passes * counts.active * longest
        seconds = flops / (setup.world * tflops * 1e12 * MFU)
        data["training_seconds"] = round(seconds, 1)
        data["training_seconds_are"] = (
            f"compute of training alone at {MFU:.0%} of {tflops:g} TFLOPS with every answer at "
            "the limit; generation comes on top"
        )
    if throughput:
        seconds = longest / throughput / setup.world
        data["step_seconds"] = round(seconds, 1)
        data["gpu_hours_step"] = round(seconds * setup.world / 3600, 2)
        if setup.steps:
            data["gpu_hours_run"] = round(seconds * setup.world / 3600 * setup.steps, 1)
            data["hours_run"] = round(seconds * setup.steps / 3600, 1)
    else:
        report.note("recipe-plan-time.gpu-hours-need", "throughput")
    report.data["time"] = data
    report.passed("recipe-plan-time")
