#!/usr/bin/env python3
"""Peak memory of one model size on one GPU, training with verl's engine or serving with vLLM.

    python measure.py --config config.json --model DIR --engine fsdp|megatron|vllm --out FILE

DIR holds config.json and a tokenizer; the weights are random and made on the GPU. A step is two
micro batches and an optimizer step. Training runs with and without recomputation, then with
weights, gradients and optimizer moved to the host and back. What is found is written after every
variant. Under ranks.py each rank measures its own GPU and writes its own file: FILE, FILE-rank1, …
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import engine as verl_engine

LENGTH = 1024
FOUND: dict[str, Any] = {"variants": {}}


def save(path: Path) -> None:
    """Write what has been found so far."""
    verl_engine.save(path, FOUND)


def process_bytes() -> int | None:
    """Bytes of the GPU that this process holds, by the driver; None where it does not say."""
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory"]
    command.append("--format=csv,noheader,nounits")
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    for line in done.stdout.splitlines():
        pid, _, used = line.partition(",")
        if pid.strip() == str(os.getpid()):
            return int(used) * 2**20
    return None


def device_bytes() -> int:
    """Bytes in use on the GPU, by whomever."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return int(total - free)


class Peaks:
    """Peak allocation of forward and backward, and of the optimizer's step, apart."""

    def __init__(self, engine: Any) -> None:
        import torch

        self.torch = torch
        self.engine = engine
        self.step = engine.optimizer_step
        engine.optimizer_step = self._step
        self.forward_backward = self.optimizer = 0

    def reset(self) -> None:
        """Begin a new peak."""
        self.torch.cuda.synchronize()
        self.torch.cuda.reset_peak_memory_stats()

    def _step(self) -> Any:
        self.torch.cuda.synchronize()
        self.forward_backward = self.torch.cuda.max_memory_allocated()
        self.reset()
        result = self.step()
        self.torch.cuda.synchronize()
        self.optimizer = self.torch.cuda.max_memory_allocated()
        return result


def random_weights(kind: str) -> None:
    """Let the engines make random weights on the GPU instead of reading a checkpoint."""
    import torch

    if kind == "fsdp":
        import transformers

        def random_model(*_: Any, config: Any = None, torch_dtype: Any = None, **__: Any) -> Any:
            with torch.device("cuda"):
                return transformers.AutoModelForCausalLM.from_config(config, dtype=torch_dtype)

        transformers.AutoModelForCausalLM.from_pretrained = random_model
    else:
        from verl.models.mcore.bridge import AutoBridge

        AutoBridge.load_hf_weights = lambda self, model, *_, **__: model


def set_recompute(kind: str, worker: Any, on: bool) -> None:
    """Switch recomputation of layers on or off in the built model."""
    engine = worker.engine
    if kind == "fsdp":
        if on:
            options = {"use_reentrant": False}
            engine.module.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        else:
            engine.module.gradient_checkpointing_disable()
        return
    from verl.utils.megatron_utils import unwrap_model

    for module in engine.module:
        inner = unwrap_model(module)
        for config in (inner.config, inner.decoder.config):
            config.recompute_granularity = "full" if on else None
            config.recompute_method = "uniform" if on else None
            config.recompute_num_layers = 1 if on else None


def train(options: argparse.Namespace) -> None:
    """Build, then step with each variant."""
    import torch

    kind = options.engine
    verl_engine.prepare()
    options.out = verl_engine.own_file(options.out)
    FOUND["rank"] = verl_engine.rank()
    config = verl_engine.read_config(options.config, options.model)
    actor = config["actor_rollout_ref"]["actor"]
    actor["ppo_max_token_len_per_gpu"] = options.tokens
    actor["ppo_micro_batch_size_per_gpu"] = options.tokens // LENGTH
    node = actor["megatron"] if kind == "megatron" else actor["fsdp_config"]
    if kind == "megatron":
        # The layers of these sizes divide over two stages; those of the tiny model do not.
        node["override_transformer_config"].pop("num_layers_in_first_pipeline_stage", None)
    # Two micro batches. Context parallel ranks share one, so it has the tokens of each of them.
    shared = node["context_parallel_size"] if kind == "megatron" else 1
    sequences = 2 * options.tokens * shared // LENGTH
    # Switched by hand below, so that one process measures both.
    node["param_offload"] = node["optimizer_offload"] = False
    if kind == "megatron":
        node["grad_offload"] = False
    random_weights(kind)
    started = time.monotonic()
    worker = verl_engine.training_worker(config)
    gc.collect()
    torch.cuda.empty_cache()
    FOUND["build_seconds"] = round(time.monotonic() - started, 1)
    FOUND["parameters"] = sum(p.numel() for p in parameters(kind, worker))
    FOUND["allocated_after_build"] = torch.cuda.memory_allocated()
    save(options.out)
    worker.set_loss_fn(
        lambda model_output, data, dp_group=None: (-model_output["log_probs"].values().mean(), {})
    )
    vocabulary = json.loads((options.model / "config.json").read_text(encoding="utf-8"))[
        "vocab_size"
    ]
    # The same tokens on every rank: tensor parallel ranks compute one sequence together.
    torch.manual_seed(0)
    rows = torch.randint(6, vocabulary, (sequences, LENGTH)).tolist()
    half = LENGTH // 2
    peaks = Peaks(worker.engine)
    for variant in options.variants.split(","):
        set_recompute(kind, worker, "recompute" in variant)
        if "offload" in variant:
            FOUND["variants"][variant] = {"offloaded": offload(worker)}
        try:
            found = step_twice(worker, rows, half, peaks)
        except torch.OutOfMemoryError as error:
            FOUND["variants"].setdefault(variant, {})["out_of_memory"] = str(error)[:300]
            save(options.out)
            break
        FOUND["variants"].setdefault(variant, {}).update(found)
        save(options.out)


def parameters(kind: str, worker: Any) -> list[Any]:
    """The model's parameters."""
    modules = worker.engine.module if kind == "megatron" else [worker.engine.module]
    return [parameter for module in modules for parameter in module.parameters()]


def step_twice(worker: Any, rows: list[list[int]], half: int, peaks: Peaks) -> dict[str, Any]:
    """Two steps; the second is recorded: the optimizer's state is there from the first on."""
    import torch

    seconds = 0.0
    for _ in range(2):
        data = verl_engine.batch([row[:half] for row in rows], [row[half:] for row in rows], 0)
        torch.cuda.empty_cache()
        peaks.reset()
        started = time.monotonic()
        worker.train_batch(data)
        torch.cuda.synchronize()
        seconds = time.monotonic() - started
    return {
        "peak_forward_backward": peaks.forward_backward,
        "peak_optimizer": peaks.optimizer,
        "allocated_after_step": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "process": process_bytes(),
        "device": device_bytes(),
        "seconds": round(seconds, 2),
    }


def offload(worker: Any) -> dict[str, Any]:
    """Everything to the host, and what stays on the GPU; then back."""
    import torch

    started = time.monotonic()
    worker.engine.to("cpu", model=True, optimizer=True, grad=True)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    away = {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "process": process_bytes(),
        "seconds": round(time.monotonic() - started, 2),
    }
    worker.engine.to("cuda", model=True, optimizer=True, grad=True)
    torch.cuda.synchronize()
    return away


def serve(options: argparse.Namespace) -> None:
    """vLLM with random weights: weights, peak of a full batch, and a KV cache of a given size."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    import torch
    from vllm import LLM, SamplingParams

    cache = 4 * 2**30
    started = time.monotonic()
    server = LLM(
        str(options.model),
        dtype="bfloat16",
        load_format="dummy",
        enforce_eager=True,
        max_model_len=2 * LENGTH,
        max_num_batched_tokens=options.tokens,
        max_num_seqs=128,
        gpu_memory_utilization=0.05,
        kv_cache_memory_bytes=cache,
        enable_prefix_caching=False,
    )
    FOUND["build_seconds"] = round(time.monotonic() - started, 1)
    FOUND["kv_cache"] = cache
    FOUND["allocated_after_build"] = torch.cuda.memory_allocated()
    tokens = server.llm_engine.vllm_config.cache_config
    FOUND["kv_tokens"] = (tokens.num_gpu_blocks or 0) * tokens.block_size
    save(options.out)
    torch.cuda.reset_peak_memory_stats()
    prompts = [{"prompt_token_ids": [6 + i % 90 for i in range(LENGTH)]} for _ in range(64)]
    server.generate(prompts, SamplingParams(max_tokens=8, temperature=1.0), use_tqdm=False)
    FOUND["variants"]["generate"] = {
        "peak": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "process": process_bytes(),
    }
    save(options.out)


def main() -> None:
    """Measure one size with one engine."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--engine", required=True, choices=("fsdp", "megatron", "vllm"))
    parser.add_argument("--tokens", type=int, default=8192, help="of a micro batch")
    parser.add_argument("--variants", default="plain,recompute,recompute+offload")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    FOUND.update(engine=options.engine, tokens=options.tokens, model=options.model.name)
    if options.engine == "vllm":
        serve(options)
    else:
        train(options)


if __name__ == "__main__":
    main()
