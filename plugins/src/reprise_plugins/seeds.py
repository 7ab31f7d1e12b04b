"""The seed of one sample, from what identifies it in a run."""

import hashlib

#: Seeds are below this: vLLM hands them to torch generators, NumPy takes 32 bits.
LIMIT = 2**31


def sample_seed(run_seed: int, step: int, prompt: int, sample: int, validate: bool) -> int:
    """Return the seed of sample ``sample`` of prompt ``prompt`` (index in its data set) at a step.

    The same five values give the same seed on every machine and Python version. Validation and
    training draw different numbers for the same indices, which belong to different data sets.
    """
    key = f"{run_seed}|{step}|{prompt}|{sample}|{'validate' if validate else 'train'}"
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % LIMIT
