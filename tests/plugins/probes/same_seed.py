"""Sample one prompt eight times with one seed, then with the eight that sample_seed gives.

usage: same_seed.py FOLDER, which make_model.py wrote. Prints how many samples are distinct.
"""

import os
import sys
from pathlib import Path

os.environ.update(
    VERL_PLATFORM="cpu",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
)

import verl  # noqa: F401  (loads the plug-in through its entry point)
from reprise_plugins.seeds import sample_seed
from vllm import LLM, SamplingParams


def main() -> None:
    llm = LLM(
        str(Path(sys.argv[1]) / "model"),
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        max_model_len=48,
        seed=0,
    )
    choices = {
        "one seed": [42] * 8,
        "sample_seed": [sample_seed(1, 1, 0, sample, False) for sample in range(8)],
    }
    for name, seeds in choices.items():
        parameters = [
            SamplingParams(seed=seed, max_tokens=12, temperature=1.0, ignore_eos=True)
            for seed in seeds
        ]
        prompts = [{"prompt_token_ids": [5, 6, 7, 8]}] * 8
        outputs = llm.generate(prompts, parameters, use_tqdm=False)
        distinct = {tuple(output.outputs[0].token_ids) for output in outputs}
        print(f"distinct with {name}: {len(distinct)}", flush=True)


if __name__ == "__main__":
    main()
