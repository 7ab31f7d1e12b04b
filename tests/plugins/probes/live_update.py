"""Send changed weights to a running vLLM engine over verl's own path; print what it computes.

usage: live_update.py FOLDER DTYPE [--runtime-names] [--stock-experts]. FOLDER is what
make_model.py wrote. The engine runs in this process with verl's worker extension; a thread sends,
through verl's BucketedWeightSender and shared memory, what the FSDP engine would send. Prints one
JSON object: log-probabilities before and after, and whether a sequence samples the same alone and
in a batch.
``--runtime-names`` sends transformers' names as they are (what verl does without the bridge);
``--stock-experts`` leaves vLLM its own expert layers and replaces the linear ones only.
"""

import asyncio
import json
import os
import random
import sys
import threading
from pathlib import Path

FOLDER, DTYPE = Path(sys.argv[1]), sys.argv[2]
os.environ.update(
    VERL_PLATFORM="cpu",
    VERL_RAY_JOB_ID=f"probe-{os.getpid()}",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    OMP_NUM_THREADS="1",
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    DO_NOT_TRACK="1",
)

import torch  # noqa: E402
import verl  # noqa: E402, F401  (loads the plug-in through its entry point)
from reprise_plugins import vllm_entry  # noqa: E402
from reprise_plugins.hy_v3 import checkpoint_weights  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import (  # noqa: E402
    BucketedWeightSender,
)
from vllm import LLM, SamplingParams  # noqa: E402
from vllm.model_executor.custom_op import op_registry_oot  # noqa: E402

EXTENSION = "verl.workers.rollout.vllm_rollout.utils.vLLMColocateWorkerExtension"


def prompt_log_probabilities(llm: LLM, sequences: list[list[int]]) -> list[list[float]]:
    parameters = SamplingParams(max_tokens=1, prompt_logprobs=0, temperature=0)
    prompts = [{"prompt_token_ids": tokens} for tokens in sequences]
    outputs = llm.generate(prompts, parameters, use_tqdm=False)
    return [
        [
            position[token].logprob
            for position, token in zip(output.prompt_logprobs[1:], tokens[1:], strict=True)
        ]
        for output, tokens in zip(outputs, sequences, strict=True)
    ]


def send(llm: LLM, weights: list[tuple[str, torch.Tensor]]) -> None:
    handle = f"ipc:///tmp/rl-colocate-zmq-{os.environ['VERL_RAY_JOB_ID']}-replica-0-rank-0.sock"
    sender = BucketedWeightSender(handle, bucket_size_mb=1, use_shm=True)
    thread = threading.Thread(
        target=lambda: asyncio.run(sender.async_send_weights(iter(weights))), daemon=True
    )
    thread.start()
    llm.collective_rpc("update_weights_from_ipc", kwargs={"use_shm": True})
    thread.join(timeout=60)


def sample(llm: LLM, prompts: list[list[int]], seeds: list[int]) -> list[tuple[list[int], list]]:
    parameters = [
        SamplingParams(seed=seed, max_tokens=12, temperature=1.0, logprobs=0, ignore_eos=True)
        for seed in seeds
    ]
    outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], parameters, use_tqdm=False)
    return [
        (
            list(output.outputs[0].token_ids),
            [next(iter(step.values())).logprob for step in output.outputs[0].logprobs],
        )
        for output in outputs
    ]


def differing(llm: LLM, prompts: list[list[int]]) -> int:
    """Return in how many of 12 batches the first prompt came out unlike when it was alone."""
    chance = random.Random(0)
    alone = sample(llm, prompts[:1], [7])[0]
    count = 0
    for size in (1, 2, 3, 5, 8, 13, 16, 17, 32, 50, 64, 100):
        place = chance.randrange(size)
        batch = [chance.choice(prompts)[: chance.randint(2, 8)] for _ in range(size)]
        seeds = [chance.randrange(2**30) for _ in range(size)]
        batch[place], seeds[place] = prompts[0], 7
        count += sample(llm, batch, seeds)[place] != alone
    return count


def main() -> None:
    if "--stock-experts" in sys.argv:
        vllm_entry.register()
        del op_registry_oot["UnquantizedFusedMoEMethod"]
    expected = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
    llm = LLM(
        str(FOLDER / "model"),
        skip_tokenizer_init=True,
        dtype=DTYPE,
        enforce_eager=True,
        max_model_len=48,
        max_num_seqs=128,
        max_num_batched_tokens=4096,
        enable_prefix_caching=False,
        seed=0,
        worker_extension_cls=EXTENSION,
    )
    result = {"before": prompt_log_probabilities(llm, expected["tokens"])}
    weights = list(load_file(FOLDER / "update.safetensors").items())
    if "--runtime-names" not in sys.argv:
        weights = list(checkpoint_weights(weights))
    send(llm, weights)
    result["after"] = prompt_log_probabilities(llm, expected["tokens"])
    result["batches_that_differ"] = differing(llm, [tokens[:7] for tokens in expected["tokens"]])
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
