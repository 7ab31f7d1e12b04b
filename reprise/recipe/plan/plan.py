"""What a recipe needs: memory, time, disk; and what to change if something does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprise.core.findings import Report
from reprise.recipe.check import check_values
from reprise.recipe.load import Loaded
from reprise.recipe.plan.critic import with_critic_on_gpu, with_critic_on_host
from reprise.recipe.plan.disk import checkpoint_disk
from reprise.recipe.plan.host import machine_memory
from reprise.recipe.plan.memory import (
    CONTEXT_TERM,
    GIB,
    Memory,
    host_bytes,
    rollout_memory,
    smallest_rollout_tp,
    training_memory,
)
from reprise.recipe.plan.time import MFU, step_compute
from reprise.recipe.rules.base import Undecided
from reprise.recipe.rules.memory import on_cpu
from reprise.recipe.setup import Setup

__all__ = ["ADVICE", "MFU", "plan", "setup_of"]

# After the out-of-memory section of the Hy3 training guide, in its order.
ADVICE = (
    "lower actor.ppo_max_token_len_per_gpu: it limits dynamic batches and sets the peak",
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
    """Terms and sums in `data`, and a finding for everything that does not fit.

    `gpu_memory` is the memory of a GPU in GiB (the recipe card's by default), `throughput` tokens a
    second and GPU over a whole step, as verl reports it in perf/throughput. `host_memory` in GiB
    is that of a node (the recipe's by default; on a CPU this machine's, if it is not stated).
    `recipes` is the folder whose lines are named for a value that is not numeric.
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
        if known:
            report.unknown(
                "recipe-plan-model.undecided", loaded.name, reason=error, recipe=loaded.name
            )
        else:
            report.unknown("recipe-plan-model.unknown-shape", loaded.name, reason=error)
    except (TypeError, ValueError, ArithmeticError) as error:
        report.unknown(
            "recipe-plan-model.not-numeric", loaded.name, reason=error, recipe=loaded.name
        )
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
    """Without a GPU the tensors of a host's ranks are all in its memory."""
    _parameters(report, setup)
    terms = with_critic_on_gpu(setup, training_memory(setup)).terms
    # The memory of a process besides its tensors was measured on a GPU only: not used here.
    rank = Memory({name: size for name, size in terms.items() if name != CONTEXT_TERM})
    report.data["training"] = _table(rank)
    report.data["host_memory"] = round(host_memory, 2)
    need = rank.total * setup.gpus_per_node / GIB
    where = "host memory"
    if need > host_memory:
        report.failed(
            "recipe-plan-host.tensors-too-large", where, need=need, host_memory=host_memory
        )
        return
    report.passed("recipe-plan-host")
    report.note("recipe-plan-host.no-gpu", where, need=need, host_memory=host_memory)


def _training(report: Report, setup: Setup, gpu_memory: float | None) -> None:
    _parameters(report, setup)
    memory = with_critic_on_gpu(setup, training_memory(setup))
    report.data["training"] = _table(memory)
    if gpu_memory is None:
        report.unknown("recipe-plan-training.memory-unknown", "gpu memory")
        return
    report.data["gpu_memory"] = gpu_memory
    need = memory.total / GIB
    if need <= gpu_memory:
        report.passed("recipe-plan-training")
        return
    report.failed(
        "recipe-plan-training.too-large",
        "actor_rollout_ref.actor",
        need=need,
        gpu_memory=gpu_memory,
        advice="; then ".join(ADVICE),
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
    found: dict[str, object] = {
        "tp": setup.rollout_tp,
        "weights": memory.terms["weights"] / GIB,
        "utilization": utilization,
        "gpu_memory": gpu_memory,
        "budget": utilization * gpu_memory,
    }
    if smallest:
        report.failed("recipe-plan-rollout.too-large", key, smallest=smallest, **found)
    else:
        report.failed("recipe-plan-rollout.no-legal-tp", key, **found)


def _host(report: Report, setup: Setup, host_memory: float | None) -> None:
    memory = with_critic_on_host(setup, host_bytes(setup))
    report.data["host"] = _table(memory)
    if host_memory is None:
        report.note("recipe-plan-host.memory-unknown", "host memory", total=memory.total / GIB)
        report.passed("recipe-plan-host")
    elif memory.total / GIB <= host_memory:
        report.passed("recipe-plan-host")
    else:
        report.failed(
            "recipe-plan-host.too-small",
            "host memory",
            total=memory.total / GIB,
            host_memory=host_memory,
        )


def _disk(report: Report, setup: Setup) -> None:
    disk = checkpoint_disk(setup)
    size = disk.each.total / 1e12
    report.data["checkpoint"] = _terabytes(disk.each)
    if disk.written is None or disk.peak is None:
        report.unknown("recipe-plan-disk.steps-unknown", "disk", size=size)
        return
    report.data["disk"] = {
        "checkpoint_tb": round(size, 2),
        "written": disk.written,
        "kept": disk.held,
        "peak_tb": round(disk.peak * size, 2),
        "all_tb": round(disk.written * size, 2),
    }
    report.passed("recipe-plan-disk")


def _terabytes(memory: Memory) -> dict[str, float]:
    return {name: round(size / 1e12, 3) for name, size in memory.terms.items()}


def _time(report: Report, setup: Setup, tflops: float | None, throughput: float | None) -> None:
    samples = setup.train_batch * setup.n
    longest = samples * setup.length
    counts = setup.model.parameters() if setup.model is not None else None
    data: dict[str, Any] = {"samples": samples, "tokens_at_most": longest}
    if setup.model is not None and counts is not None and tflops:
        compute = step_compute(setup, setup.model, counts)
        data["training_seconds"] = round(compute.seconds(setup.world, tflops, MFU), 1)
        data["attention_share"] = round(compute.attention / compute.total, 3)
        data["training_seconds_are"] = (
            f"training compute only, at {MFU:.0%} of {tflops:g} TFLOPS, every answer at the length "
            "limit; generation comes on top"
        )
    if throughput:
        seconds = longest / throughput / setup.world
        data["step_seconds"] = round(seconds, 1)
        data["gpu_hours_step"] = round(seconds * setup.world / 3600, 2)
        if setup.steps:
            data["gpu_hours_run"] = round(seconds * setup.world / 3600 * setup.steps, 1)
            data["hours_run"] = round(seconds * setup.steps / 3600, 1)
    else:
        report.note("recipe-plan-time.no-throughput", "throughput")
    report.data["time"] = data
    report.passed("recipe-plan-time")
