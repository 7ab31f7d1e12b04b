"""The same tokens by the two rollout engines, each as a run's resolved config starts it.

Used by parity.py. An engine samples (its own log-probabilities, while it decodes) or scores answers
that another one gave.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

LENGTH = 32


def prompts_of(options: argparse.Namespace) -> list[list[int]]:
    """The chat template's tokens of every prompt of --data."""
    import pyarrow.parquet as pq
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    rows = pq.read_table(options.data, columns=["prompt"]).to_pylist()
    return [
        tokenizer.apply_chat_template(
            row["prompt"], tokenize=True, add_generation_prompt=True, return_dict=False
        )
        for row in rows
    ]


def runtime_library_first() -> None:
    """Let SGLang's processes find CUDA's runtime library, which its preloaded memory saver needs.

    torch brings it in a folder that the loader does not search; a run gets this from the launcher.
    """
    import nvidia

    found = [
        str(p.parent) for root in nvidia.__path__ for p in Path(root).glob("*/lib/libcudart.so.*")
    ]
    before = os.environ.get("LD_LIBRARY_PATH", "")
    os.environ["LD_LIBRARY_PATH"] = ":".join([*dict.fromkeys(found), before]).strip(":")


def sglang_engine(options: argparse.Namespace, **more: Any) -> tuple[Any, float]:
    """SGLang with the arguments that verl gives it for --config, and the weights of --model."""
    runtime_library_first()
    import sglang

    config = json.loads(options.config.read_text(encoding="utf-8"))["actor_rollout_ref"]["rollout"]
    own = {k: v for k, v in config["engine_kwargs"]["sglang"].items() if v is not None}
    wanted = {
        "model_path": str(options.model),
        "dtype": config["dtype"],
        "mem_fraction_static": config["gpu_memory_utilization"],
        "disable_cuda_graph": config["enforce_eager"],
        "max_running_requests": config["max_num_seqs"],
        "skip_tokenizer_init": True,
        "skip_server_warmup": True,
        "enable_memory_saver": True,
        "log_level": "error",
        **own,
        **more,
    }
    started = time.monotonic()
    engine = sglang.Engine(**wanted)
    return engine, round(time.monotonic() - started, 1)


def _sglang_tokens(outputs: list[Any]) -> tuple[list[list[int]], list[list[float]]]:
    tokens = [list(out["output_ids"]) for out in outputs]
    found = [[v for v, _, _ in out["meta_info"]["output_token_logprobs"]] for out in outputs]
    return tokens, found


def sglang(options: argparse.Namespace) -> dict[str, Any]:
    """Sample every prompt of --data, or score the answers of --samples.

    Sampling is done twice, all at once and one half after the other: equal answers and
    log-probabilities say that a token does not depend on its batch.
    """
    engine, seconds = sglang_engine(options)
    if options.samples:
        taken = json.loads(options.samples.read_text(encoding="utf-8"))
        return {"name": "SGLang bfloat16, scored", **sglang_scored(engine, taken)}
    prompts = prompts_of(options)
    wanted = [
        {"temperature": 1.0, "max_new_tokens": 8, "stop_token_ids": [1], "sampling_seed": number}
        for number in range(len(prompts))
    ]
    times = []
    answers: list[Any] = []
    for parts in ((slice(None),), (slice(None),), (slice(1, None, 2), slice(0, None, 2))):
        began = time.monotonic()
        got: dict[int, Any] = {}
        for part in parts:
            numbers = range(len(prompts))[part]
            outputs = engine.generate(
                input_ids=prompts[part], sampling_params=wanted[part], return_logprob=True
            )
            got |= dict(zip(numbers, outputs, strict=True))
        times.append(round(time.monotonic() - began, 2))
        answers.append(_sglang_tokens([got[number] for number in range(len(prompts))]))
    (tokens, found), again, halves = answers
    engine.shutdown()
    return {
        "name": "SGLang bfloat16",
        "prompts": prompts,
        "answers": tokens,
        "logprobs": found,
        "engine_seconds": seconds,
        "generate_seconds": times,
        "same_again": _same((tokens, found), again),
        "same_in_halves": _same((tokens, found), halves),
    }


def _same(one: Any, other: Any) -> dict[str, int]:
    """Answers with equal tokens, and of them those with equal log-probabilities, of how many."""
    rows = list(zip(*one, *other, strict=True))
    equal = [row for row in rows if row[0] == row[2]]
    bits = sum(row[1] == row[3] for row in equal)
    return {"of": len(rows), "tokens": len(equal), "logprobs": bits}


def sglang_scored(engine: Any, taken: dict[str, Any]) -> dict[str, Any]:
    """Log-probabilities of given answers: those of the input from the prompt's last token on."""
    whole = [p + a for p, a in zip(taken["prompts"], taken["answers"], strict=True)]
    outputs = engine.generate(
        input_ids=whole,
        sampling_params={"temperature": 1.0, "max_new_tokens": 1},
        return_logprob=True,
        logprob_start_len=[len(prompt) - 1 for prompt in taken["prompts"]],
    )
    logprobs = []
    for out, prompt, answer in zip(outputs, taken["prompts"], taken["answers"], strict=True):
        rows = out["meta_info"]["input_token_logprobs"]
        kept = [(value, token) for value, token, *_ in rows][-len(answer) :]
        if [token for _, token in kept] != answer:
            raise SystemExit(f"SGLang scored other tokens than {answer} after {prompt}: {rows}")
        logprobs.append([value for value, _ in kept])
    engine.shutdown()
    return {"logprobs": logprobs}


def vllm(options: argparse.Namespace) -> dict[str, Any]:
    """vLLM's log-probabilities of the answers of --samples."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM, SamplingParams

    taken = json.loads(options.samples.read_text(encoding="utf-8"))
    server = LLM(
        str(options.model),
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=LENGTH,
        max_num_seqs=128,
        gpu_memory_utilization=0.05,
        kv_cache_memory_bytes=2**30,
        enable_prefix_caching=False,
        skip_tokenizer_init=True,
    )
    whole = [p + a for p, a in zip(taken["prompts"], taken["answers"], strict=True)]
    outputs = server.generate(
        [{"prompt_token_ids": ids} for ids in whole],
        SamplingParams(temperature=1.0, max_tokens=1, prompt_logprobs=0, detokenize=False),
        use_tqdm=False,
    )
    logprobs = []
    for out, ids, answer in zip(outputs, whole, taken["answers"], strict=True):
        first = len(ids) - len(answer)
        logprobs.append([out.prompt_logprobs[i][ids[i]].logprob for i in range(first, len(ids))])
    return {"name": "vLLM bfloat16, scored", "logprobs": logprobs}


def tensors(options: argparse.Namespace) -> dict[str, Any]:
    """Digests of an engine's parameters: as it loaded them, and as the first update left them.

    The two FILES are records of the plug-ins' guard (REPRISE_WRITTEN_DIGESTS=1).
    """
    one, other = (json.loads(Path(path).read_text(encoding="utf-8")) for path in options.files)
    a, b = one["digests"], other["digests"]
    common = a.keys() & b.keys()
    return {
        "loaded": [bool(one.get("loaded")), bool(other.get("loaded"))],
        "parameters": [len(a), len(b)],
        "only_in_one": sorted(a.keys() ^ b.keys()),
        "equal": sum(a[name] == b[name] for name in common),
        "different": sorted(name for name in common if a[name] != b[name]),
    }
