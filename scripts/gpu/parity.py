#!/usr/bin/env python3
"""The log-probabilities of the same tokens by vLLM, Hugging Face, FSDP and Megatron; round trip.

    python parity.py sample --model DIR --data train.parquet --out samples.json
    python parity.py hf --dtype float32|bfloat16 --model DIR --samples samples.json --out FILE
    python parity.py fsdp|megatron --config config.json --model DIR --samples ... --out FILE
    python parity.py sglang --config config.json --model DIR --data train.parquet --out FILE
    python parity.py sglang --config config.json --model DIR --samples samples.json --out FILE
    python parity.py vllm --model DIR --samples samples.json --out FILE
    python parity.py tensors RECORD RECORD --out FILE
    python parity.py compare FILE... --out parity.json

Under ranks.py each rank computes all answers, and writes its own file: FILE, FILE-rank1, … Those of
ranks that have no outputs (the first stages of a pipeline) have no log-probabilities.

`sample` lets vLLM (bfloat16) answer every prompt once, at temperature 1; the others compute the
same answers' log-probabilities. With megatron the weights also go Hugging Face -> Megatron ->
Hugging Face through the bridge, and each is compared with the checkpoint. `sglang` samples as
`sample` does, or scores answers, and `vllm` scores them. `tensors` compares what SGLang loaded from
the checkpoint with what the first weight update wrote.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import engine as verl_engine
import rollouts


def sample(options: argparse.Namespace) -> dict[str, Any]:
    """One answer a prompt, with vLLM's own log-probabilities."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    import pyarrow.parquet as pq
    from transformers import AutoTokenizer
    from vllm import LLM, SamplingParams

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    rows = pq.read_table(options.data, columns=["prompt"]).to_pylist()
    prompts = [
        tokenizer.apply_chat_template(
            row["prompt"], tokenize=True, add_generation_prompt=True, return_dict=False
        )
        for row in rows
    ]
    server = LLM(
        str(options.model),
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=24,
        max_num_seqs=128,
        gpu_memory_utilization=0.05,
        kv_cache_memory_bytes=2**30,
        enable_prefix_caching=False,
    )
    wanted = [
        SamplingParams(temperature=1.0, max_tokens=8, logprobs=0, seed=i)
        for i in range(len(prompts))
    ]
    answers = server.generate(
        [{"prompt_token_ids": prompt} for prompt in prompts], wanted, use_tqdm=False
    )
    tokens = [list(answer.outputs[0].token_ids) for answer in answers]
    found = [
        [step[token].logprob for step, token in zip(a.outputs[0].logprobs, ids, strict=True)]
        for a, ids in zip(answers, tokens, strict=True)
    ]
    return {"name": "vLLM bfloat16", "prompts": prompts, "answers": tokens, "logprobs": found}


def with_hugging_face(options: argparse.Namespace) -> dict[str, Any]:
    """transformers' own model; also which experts each position of a sequence is sent to."""
    import torch
    from transformers import AutoModelForCausalLM

    taken = json.loads(options.samples.read_text(encoding="utf-8"))
    dtype = getattr(torch, options.dtype)
    model = AutoModelForCausalLM.from_pretrained(
        options.model, dtype=dtype, attn_implementation="sdpa"
    )
    model = model.cuda().eval() if torch.cuda.is_available() else model.eval()
    chosen: list[Any] = []
    for layer in model.model.layers:
        gate = getattr(layer.mlp, "gate", None)
        if gate is not None:
            gate.register_forward_hook(lambda _m, _i, out: chosen.append(out))
    logprobs, experts = [], []
    with torch.no_grad():
        for prompt, answer in zip(taken["prompts"], taken["answers"], strict=True):
            chosen.clear()
            ids = torch.tensor([prompt + answer], device=model.device)
            scores = torch.log_softmax(model(ids).logits[0].float(), -1)
            first = len(prompt) - 1
            logprobs.append([scores[first + i, token].item() for i, token in enumerate(answer)])
            experts.append([_indices(out) for out in chosen])
    return {"name": f"Hugging Face {options.dtype}", "logprobs": logprobs, "experts": experts}


def _indices(out: Any) -> list[list[int]]:
    """The experts of each position, sorted, from what a router returns."""
    parts = out if isinstance(out, tuple) else (out,)
    whole = [p for p in parts if not p.is_floating_point() and p.dim() >= 2]
    if not whole:
        raise SystemExit("the router returns no expert numbers: check its forward()")
    flat = whole[0].reshape(-1, whole[0].shape[-1])
    return [sorted(row) for row in flat.tolist()]


def with_verl(options: argparse.Namespace) -> dict[str, Any]:
    """verl's engine, as a run computes old_log_probs; with Megatron also the round trip."""
    verl_engine.prepare()
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import no_padding_2_padding

    taken = json.loads(options.samples.read_text(encoding="utf-8"))
    worker = verl_engine.training_worker(verl_engine.read_config(options.config, options.model))
    logprobs: list[list[float]] = []
    for start in range(0, len(taken["prompts"]), 128):
        prompts = taken["prompts"][start : start + 128]
        answers = taken["answers"][start : start + 128]
        # The engines take whole micro batches.
        extra = 128 - len(prompts)
        data = verl_engine.batch(prompts + prompts[:1] * extra, answers + answers[:1] * extra, 0)
        out = worker.infer_batch(data)
        if out is None:
            continue
        padded = no_padding_2_padding(tu.get(out, "log_probs").cpu(), data)
        logprobs += [
            row[: len(answer)].tolist() for row, answer in zip(padded, answers, strict=False)
        ]
    result: dict[str, Any] = {"name": f"verl {options.what}", "logprobs": logprobs}
    result["rank"] = verl_engine.rank()
    if options.what == "megatron":
        result["round_trip"] = round_trip(worker, options.model)
    return result


def round_trip(worker: Any, model: Path) -> dict[str, Any]:
    """What the bridge sends to the rollout, against the checkpoint that it read."""
    from safetensors.torch import load_file

    stored = load_file(model / "model.safetensors")
    sent = verl_engine.weights(worker)
    common = sorted(stored.keys() & sent.keys())
    errors = {name: (sent[name] - stored[name].float()).abs().max().item() for name in common}
    # The trainer holds bfloat16: what rounding alone would cost.
    rounded = {
        name: (stored[name].bfloat16().float() - stored[name].float()).abs().max().item()
        for name in common
    }
    exact = [n for n in common if (sent[n] == stored[n].bfloat16().float()).all().item()]
    worst = max(errors, key=errors.__getitem__)
    return {
        "keys_in_checkpoint": len(stored),
        "keys_sent": len(sent),
        "missing": sorted(stored.keys() - sent.keys()),
        "extra": sorted(sent.keys() - stored.keys()),
        "largest_error": errors[worst],
        "at": worst,
        "largest_rounding": max(rounded.values()),
        "equal_to_the_rounded_checkpoint": len(exact),
    }


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Every pair: mean and largest difference of a token's log-probability and probability."""
    import math

    found = [json.loads(path.read_text(encoding="utf-8")) for path in options.files]
    pairs = {}
    for index, one in enumerate(found):
        for other in found[index + 1 :]:
            logs, probs, rows = [], [], []
            for a, b in zip(one["logprobs"], other["logprobs"], strict=True):
                logs += [abs(x - y) for x, y in zip(a, b, strict=True)]
                here = [abs(math.exp(x) - math.exp(y)) for x, y in zip(a, b, strict=True)]
                probs += here
                rows.append(max(here))
            pairs[f"{one['name']} / {other['name']}"] = {
                "tokens": len(logs),
                "log_mean": sum(logs) / len(logs),
                "log_max": max(logs),
                "prob_mean": sum(probs) / len(probs),
                "prob_max": max(probs),
                "answers_over_0.1": sum(row > 0.1 for row in rows),
            }
    result: dict[str, Any] = {"pairs": pairs}
    result["round_trip"] = next((f["round_trip"] for f in found if "round_trip" in f), None)
    routed = [f for f in found if "experts" in f]
    if len(routed) == 2:
        result["routing"] = routing(*routed)
    return result


def routing(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Differences of probabilities where both precisions choose the same experts, and where not."""
    import math

    same: list[float] = []
    moved: list[float] = []
    rows = zip(one["logprobs"], other["logprobs"], one["experts"], other["experts"], strict=True)
    for a, b, experts_a, experts_b in rows:
        length = len(experts_a[0])
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            # A token sees every position before it.
            seen = length - len(a) + index
            flipped = any(p[:seen] != q[:seen] for p, q in zip(experts_a, experts_b, strict=True))
            (moved if flipped else same).append(abs(math.exp(x) - math.exp(y)))
    return {
        "tokens_same_experts": len(same),
        "tokens_other_experts": len(moved),
        "prob_mean_same": sum(same) / max(1, len(same)),
        "prob_max_same": max(same, default=0.0),
        "prob_mean_other": sum(moved) / max(1, len(moved)),
        "prob_max_other": max(moved, default=0.0),
    }


def main() -> None:
    """Run one part and write what it found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts = {"sample": sample, "hf": with_hugging_face, "compare": compare}
    parts |= {"sglang": rollouts.sglang, "vllm": rollouts.vllm, "tensors": rollouts.tensors}
    parser.add_argument("what", choices=(*parts, "fsdp", "megatron"))
    for name in ("model", "data", "config", "samples", "out"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    result = parts.get(options.what, with_verl)(options)
    out = options.out if options.what in parts else verl_engine.own_file(options.out)
    half = out.with_name(out.name + ".half")
    half.write_text(json.dumps(result) + "\n")
    half.replace(out)


if __name__ == "__main__":
    main()
