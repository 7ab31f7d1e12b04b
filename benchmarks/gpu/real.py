"""Qwen3-8B's true size on one GPU: what is planned, and beside it what a visit measured.

    python benchmarks/gpu/real.py predict [--verl FOLDER]   writes real-predicted.json here, dated
    python benchmarks/gpu/real.py compare RUN HELD          a run's folder, watch.py's file of it

`predict` was run before the visit (docs/gpu.md). The planner is asked as `reprise recipe plan`
asks it; `read` are terms that it lacks, from Megatron-LM's source.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from reprise.core.files import write_text
from reprise.flows.target import Target
from reprise.recipe.config.overrides import Line
from reprise.recipe.load import Inputs, load
from reprise.recipe.plan.plan import plan, setup_of
from reprise.recipe.plan.time import step_compute, update_compute

ROOT = Path(__file__).resolve().parents[2]
PREDICTED = Path(__file__).resolve().with_name("real-predicted.json")
GIB = 2**30
# An H200: 143771 MiB, 989 TFLOPS of bfloat16 without sparsity, 4.8 TB/s of HBM3e, PCIe 5 x 16.
CARD_GIB, TFLOPS, SHARE = 140.4, 989.0, 0.35
SIZES = {"real-8b": 36, "real-save": 8}


def config_of(layers: int) -> dict[str, Any]:
    """What scripts/gpu/real_model.py writes."""
    sys.path.insert(0, str(ROOT / "scripts/gpu"))
    import real_model

    card = tomllib.loads((ROOT / "recipes/qwen3-8b/card.toml").read_text(encoding="utf-8"))
    return {**card["model"]["config"], **real_model.FURTHER, "num_hidden_layers": layers}


def predicted(name: str, layers: int, verl: Path | None) -> dict[str, Any]:
    """The plan of one job, and what it leaves out."""
    place = Target("gpu", "megatron", rollout="sglang")
    lines = [
        Line(text) for text in (*place.overrides(), "rehearsal/arch=qwen3", "rehearsal/size=8b")
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config_of(layers)))
        loaded = load(ROOT, "rehearsal", lines, Inputs(verl=verl, model_config=path))
    report = plan(loaded, CARD_GIB)
    data = {
        key: report.data[key] for key in ("parameters", "training", "rollout", "host", "checkpoint")
    }
    setup = setup_of(loaded)
    model = loaded.model
    counts = model.parameters() if model is not None else None
    if model is None or counts is None:
        sys.exit("the model's shape is unknown")
    compute = step_compute(setup, model, counts)
    size = counts.total
    half = 2 * size
    return {
        **data,
        "update_seconds": round(update_compute(setup, model, counts).seconds(1, TFLOPS, SHARE), 1),
        "training_seconds": round(compute.seconds(1, TFLOPS, SHARE), 1),
        "weights_sent_gb": round(half / 1e9, 2),
        "checkpoint_gb": round(14 * size / 1e9, 1),
        "read": {
            "master weights that stay on the GPU without use_precision_aware_optimizer, GiB": round(
                4 * size / GIB, 2
            ),
            "their float32 gradients during the step, GiB": round(4 * size / GIB, 2),
            "pinned float32 gradients on the host, GiB": round(4 * size / GIB, 2),
            "a second copy of the master weights on the host, GiB": round(4 * size / GIB, 2),
            "source": "Megatron-LM 0823c731 core/optimizer/cpu_offloading/hybrid_optimizer.py: "
            "_set_sub_optimizer_grads, gpu_params_map_cpu_copy",
        },
    }


def measured(run: Path, held: Path) -> dict[str, Any]:
    """Peaks of a run's samples, and verl's own seconds of each step."""
    columns = json.loads(held.read_text(encoding="utf-8"))["columns"]
    known = [value for value in columns["gpu_mib"] if value is not None]
    steps = []
    for path in sorted(run.glob("metrics/attempt-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            times = {k: v for k, v in row["data"].items() if k.startswith(("timing_s/", "perf/"))}
            peaks = {k: v for k, v in row["data"].items() if "memory" in k}
            steps.append({"step": row["step"], **times, **peaks})
    return {
        "gpu_gib": round(max(known) / 1024, 2) if known else None,
        "host_gib": [columns["host_gib"][0], max(columns["host_gib"])],
        "disk_gib": [columns["disk_gib"][0], max(columns["disk_gib"])],
        "shm_gib": max(columns["shm_gib"]),
        "steps": steps,
    }


def main() -> None:
    """Predict, or print what was measured beside it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("predict", "compare"))
    parser.add_argument("paths", type=Path, nargs="*")
    parser.add_argument("--verl", type=Path)
    options = parser.parse_args()
    if options.what == "predict":
        rows = {name: predicted(name, n, options.verl) for name, n in SIZES.items()}
        stamp = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        write_text(PREDICTED, json.dumps({"predicted": stamp, **rows}, indent=1) + "\n")
        print(PREDICTED.read_text(encoding="utf-8"))
        return
    if len(options.paths) != 2:
        parser.error("name a run's folder and watch.py's file")
    found = {"measured": measured(*options.paths)}
    print(json.dumps(json.loads(PREDICTED.read_text(encoding="utf-8")) | found, indent=1))


if __name__ == "__main__":
    main()
