"""Run in an environment with transformers: what a model class would miss in a set of weights.

Reads JSON lines {"id", "config", "tensors": {name: [dtype, shape]}} from standard input. Writes
{"ready": version of transformers}, then for each line {"id", "class"} with either "unknown" (a
reason why it could not be found out), "failed" (the class cannot be built, or its loader stops) or
"missing", "unexpected" (names) and "mismatched" ([name, found shape, expected shape]).

The class is built on torch's meta device and transformers' own loader puts tensors of the given
shapes into it, so no weights are read and its renaming, merging of experts, tied weights and names
to ignore count as in a real load. Imports nothing of the operator's package.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from typing import Any

# What the loader refuses or converts in other ways than other weights of 8 bits.
_SCALES = ("_scale_inv", ".weight_scale", ".input_scale")


class Undecided(Exception):
    """The comparison needs something that this environment lacks; the text gives the reason."""


def class_of(config: Any, architectures: list[str]) -> Any:
    """The class that verl loads: the first of config.json's architectures."""
    import transformers

    if not architectures:
        return transformers.AutoModelForCausalLM
    found = getattr(transformers, architectures[0], None)
    if found is None:
        raise Undecided(f"this transformers has no class {architectures[0]}")
    return found


def read_config(values: dict[str, Any]) -> Any:
    """The config object of config.json's values, without code of the model's own."""
    from transformers import CONFIG_MAPPING

    kind = values.get("model_type")
    if kind not in CONFIG_MAPPING:
        raise Undecided(f"this transformers does not know model_type {kind!r}")
    return CONFIG_MAPPING[kind].from_dict(values)


def meta_tensors(tensors: dict[str, Any], quantized: bool) -> dict[str, Any]:
    """Tensors without storage, of the shapes and types in the headers."""
    import torch

    types = {
        "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
        "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "I64": torch.int64,
        "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
        "BOOL": torch.bool,
    }  # fmt: skip
    found = {}
    for name, (dtype, shape) in tensors.items():
        if quantized and name.endswith(_SCALES):
            continue
        kind = types.get(dtype, torch.float32)
        found[name] = torch.empty(shape, dtype=kind, device="meta")
    return found


def compare(values: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """The answer for one config and its tensors, without "id"."""
    quantized = dict(values.pop("quantization_config", None) or {})
    if quantized and quantized.get("quant_method") != "fp8":
        raise Undecided(
            f"weights are quantized ({quantized.get('quant_method', 'method unknown')})"
        )
    architectures = [str(name) for name in values.get("architectures") or []]
    config = read_config(values)
    chosen = class_of(config, architectures)
    _, info = chosen.from_pretrained(
        None,
        config=config,
        state_dict=meta_tensors(tensors, bool(quantized)),
        device_map={"": "meta"},
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    return {
        "class": architectures[0] if architectures else chosen.__name__,
        "missing": sorted(info["missing_keys"]),
        "unexpected": sorted(info["unexpected_keys"]),
        "mismatched": sorted(
            [name, list(found), list(wanted)] for name, found, wanted in info["mismatched_keys"]
        ),
    }


def _make_equality_lazy() -> None:
    """Let torch.equal answer False for tensors without values.

    transformers asks it whether a tied head in the files equals the embedding; if not, it loads
    both, and so misses neither.
    """
    import torch

    equal = torch.equal
    torch.equal = lambda a, b: not (a.is_meta or b.is_meta) and equal(a, b)


def answer(item: dict[str, Any]) -> dict[str, Any]:
    """The answer for one line."""
    try:
        found = compare(item["config"], item["tensors"])
    except Undecided as reason:
        found = {"unknown": str(reason)}
    except ImportError as error:
        found = {"unknown": f"the class needs a package: {error}".splitlines()[0][:300]}
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        found = {"failed": f"{type(error).__name__}: {' '.join(lines)[:400]}"}
    return {"id": item["id"]} | found


def main() -> None:
    """Serve standard input until it ends."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    # Libraries print to stdout: results use a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        _make_equality_lazy()
        version = importlib.metadata.version("transformers")
    except Exception as error:
        answers.write(json.dumps({"failed": f"{type(error).__name__}: {error}"[:500]}) + "\n")
        return
    answers.write(json.dumps({"ready": version}) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
