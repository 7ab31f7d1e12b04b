#!/usr/bin/env python3
"""Whether a GPU environment's packages fit together, on a machine without a GPU. Needs no card.

    .venv/bin/python scripts/gpu/check_without_card.py --python PYTHON [--site FOLDER]
        [--rollout vllm|sglang] [--config FILE ...] [--model FOLDER]

PYTHON has torch for CUDA (the build that the lock's `provided` names; no driver is needed), FOLDER
is the site tree (env.py finds it by itself), FILE a resolved config (JSON): verl then starts its
rollout engine up to the point where it needs the card; without it that is not checked.

A Hopper card is pretended, so that the code for CUDA is imported as a run imports it, and with it a
driver library whose functions all fail and TransformerEngine's extension, which only a machine with
a GPU builds. Imports and arguments are checked, no kernel. Exit code 0: all of it holds, 1: not,
2: it could not be found out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import env
from basics import ROOT, Problem

CHILD = ROOT / "scripts" / "gpu" / "pretended_card.py"
TREES = ("verl", "Megatron-Bridge/src", "Megatron-LM", "TransferQueue")
TRAINING = (
    "transformer_engine.pytorch",
    "megatron.core",
    "megatron.bridge",
    "verl.trainer.main_ppo",
    "verl.workers.engine.megatron",
)
MODULES = {
    "vllm": ("vllm", "verl.workers.rollout.vllm_rollout.vllm_async_server"),
    "sglang": (
        "sgl_kernel",
        "sglang.srt.entrypoints.http_server",
        "sglang.srt.managers.scheduler",
        "sglang.srt.model_executor.model_runner",
        "sglang.srt.models.qwen3",
        "sglang.srt.models.qwen3_moe",
        "sglang.srt.layers.attention.triton_backend",
        "verl.workers.rollout.sglang_rollout.async_sglang_server",
        "verl.workers.rollout.sglang_rollout.sglang_rollout",
    ),
}
# Functions of the driver: cuMemMap, not cudaMalloc or cublasCreate.
DRIVER = re.compile(r"^cu[A-Z]\w*$")
NO_DEVICE = 100


def driver_library(site: Path, folder: Path) -> None:
    """A libcuda.so.1 that has what the tree's libraries want of it; every call fails (no device).

    Raises Problem without a compiler or nm.
    """
    for tool in ("cc", "nm"):
        if shutil.which(tool) is None:
            message = f"{tool} is not found, needed to stand in for the driver"
            raise Problem(message, f"install {tool}")
    names: set[str] = set()
    for library in site.rglob("*.so*"):
        done = subprocess.run(
            ["nm", "-D", "--undefined-only", str(library)],
            capture_output=True, encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip
        words = [line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()]
        names |= {word for word in words if DRIVER.match(word)}
    source = folder / "libcuda.c"
    source.write_text(
        "".join(f"int {name}() {{ return {NO_DEVICE}; }}\n" for name in sorted(names))
    )
    command = ["cc", "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, "-o", str(folder / "libcuda.so.1"), str(source)], check=True)


def variables(folder: Path, trees: Path, facts: dict) -> dict[str, str]:
    """What a job has set, of which imports depend; the pretended libraries first."""
    nvidia = [
        str(lib) for site in facts["site"] for lib in sorted(Path(site, "nvidia").glob("*/lib"))
    ]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": os.pathsep.join([str(folder), *nvidia]),
        "PYTHONPATH": os.pathsep.join(str(trees / tree) for tree in TREES),
        "SGLANG_IS_FLASHINFER_AVAILABLE": "false",
        "VERL_PLATFORM": "nvidia",
        "NO_VCS_VERSION": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        # The site tree stays as it is.
        "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "check-bytecode"),
    }


def check(options: argparse.Namespace, folder: Path) -> list[str]:
    """Make an environment in `folder` and run the child in it; what does not hold."""
    kind = env.KINDS[options.rollout]
    python = options.python or env.python_of()
    facts = env.base_facts(python)
    env.check_base(facts, python)
    site = env.find_site(options.site, kind)
    venv = folder / "venv"
    env.make_venv(python, facts, site, venv)
    if options.rollout == "sglang":
        env.prepare_sglang(venv)
    if (site / "transformer_engine").is_dir():
        env.needs_of_transformer_engine(venv)
        env.add_cublas_symbol(venv)
    driver_library(site, folder)
    job = {"modules": [*MODULES[options.rollout], *TRAINING]}
    job |= {"configs": [str(file.resolve()) for file in options.config]}
    job |= {"model": str(options.model.resolve()) if options.model else ""}
    (folder / "job.json").write_text(json.dumps(job))
    done = subprocess.run(
        [str(venv / "bin" / "python"), str(CHILD), str(folder / "job.json")],
        env=variables(folder, options.trees.resolve(), facts), cwd=folder, check=False,
    )  # fmt: skip
    answer = folder / "answer.json"
    if not answer.is_file():
        raise Problem(f"the check itself ended with exit code {done.returncode}", "read its output")
    wrong: list[str] = json.loads(answer.read_text(encoding="utf-8"))
    return wrong


def main() -> int:
    """Check, print what does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", help="an interpreter 3.12 that has torch for CUDA")
    parser.add_argument("--site", help="the site tree, where it is not found by itself")
    parser.add_argument("--rollout", default="sglang", choices=sorted(env.KINDS))
    parser.add_argument("--trees", type=Path, default=ROOT / "third_party")
    parser.add_argument(
        "--config", type=Path, nargs="*", default=[], help="a resolved config, JSON"
    )
    parser.add_argument("--model", type=Path, help="the model's folder, in place of the config's")
    options = parser.parse_args()
    missing = [tree for tree in TREES if not (options.trees / tree).is_dir()]
    try:
        if missing:
            raise Problem(
                f"{options.trees} lacks {', '.join(missing)}", "reprise setup --machine gpu-sglang"
            )
        with tempfile.TemporaryDirectory() as folder:
            wrong = check(options, Path(folder))
    except Problem as problem:
        print(f"error: {problem}\n    fix: {problem.fix}", file=sys.stderr)
        return problem.code
    for text in wrong:
        print(f"error: {text}")
    print(f"{options.rollout}: {'everything holds' if not wrong else f'{len(wrong)} do not hold'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
