"""Run by the rehearsal's interpreter: tiny whole models, and what transformers says of files.

`save CONFIGS FOLDER` saves one model per architecture with save_pretrained. `load` reads a folder a
line and prints {"folder", "missing", "unexpected", "mismatched"} or {"folder", "error"}: the real
load from files, on the CPU, which the check itself never does.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import torch
import transformers


def class_of(config: dict[str, Any]) -> Any:
    return getattr(transformers, config["architectures"][0])


def save(configs: Path, target: Path) -> None:
    for name, values in json.loads(configs.read_text(encoding="utf-8")).items():
        torch.manual_seed(0)
        config = transformers.CONFIG_MAPPING[values["model_type"]].from_dict(values)
        class_of(values)(config).to(torch.bfloat16).save_pretrained(target / name)


def load(folder: str) -> dict[str, Any]:
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        _, info = class_of(config).from_pretrained(
            folder, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except Exception as error:
        return {"folder": folder, "error": f"{type(error).__name__}: {error}"[:200]}
    found = {
        key: sorted(map(str, info[f"{key}_keys"]))
        for key in ("missing", "unexpected", "mismatched")
    }
    return {"folder": folder} | found


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if sys.argv[1] == "save":
        save(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        for line in sys.stdin:
            answers.write(json.dumps(load(line.strip())) + "\n")
