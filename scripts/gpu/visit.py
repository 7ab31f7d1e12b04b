#!/usr/bin/env python3
"""The commands of a visit to a GPU, for jobs.py: each stage is one list.

    python3 scripts/gpu/visit.py STAGE OUT [NAME ...]  writes OUT/jobs.json and runs it
    python3 scripts/gpu/visit.py collect OUT           packs what came out into OUT/*.tar.xz

Stages: `seeds` (build TransformerEngine's extension, log-probability parity, three seeds of each
engine), `more` (seeds up to five, their references, and what `make` does with them), `references`
(five seeds of each engine and the references of them, nothing else), `claims`
(frozen actors, the overlong penalty through both spellings of its keys, the other Megatron-LM) and
`sizes` (peak memory, of the sizes NAME; benchmarks/gpu/planner.py). Run in the project, where
`make env` and env.py have been. docs/gpu.md says what was run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PYTHON = str(ROOT / ".venv-gpu/bin/python")
OPERATOR = str(ROOT / ".venv/bin/python")
SEEDS = (101, 102, 103)
RECORDED = (101, 102, 103, 104, 105)
ENGINES = ("fsdp", "megatron")
# Small runs share a GPU: weights, vLLM's start-up and its cache of 1 GiB.
# Thirty steps of Megatron-LM took 720 s where Python writes no bytecode and every start compiles.
LIMITS = {"gib": 12, "limit_s": 1000}
IN_PROJECT = {**os.environ, "PYTHONPATH": str(ROOT)}
OTHER_MEGATRON = ROOT.parent / f"{ROOT.name}-0.18.0"


def reproduce(name: str, engine: str, seed: int, *more: str, root: Path = ROOT) -> dict[str, Any]:
    """A rehearsal run. 1 and 2 are verdicts too: whether it came to its end is in its run.json."""
    words = [OPERATOR, "-m", "reprise", "reproduce", "rehearsal", "--platform", "gpu"]
    words += ["--engine", engine, "--seed", str(seed)]
    options = [word for word in more if word.startswith("--")]
    overrides = [word for word in more if not word.startswith("--")]
    if overrides:
        overrides = ["--", *overrides]
    command = [*alone(name, root), *words, *options, *overrides]
    return {"name": name, "command": command, **LIMITS, "good": [0, 2]}


def alone(name: str, root: Path) -> list[str]:
    """Words that run what follows them in `root`, with a /tmp of its own.

    verl names the socket of its weight transfer after Ray's job number alone, which is the same in
    every private Ray of a machine: runs side by side would send each other their weights.
    """
    shared = ROOT.parent
    own = Path("/var/tmp/alone") / name  # noqa: S108
    script = (
        'set -e; own=$1; shared=$2; cd_to=$3; shift 3; mkdir -p "$own$shared"; '
        'mount --make-rprivate /; mount --bind "$shared" "$own$shared"; '
        'mkdir -p "$own/tmp"; mount --rbind "$own/tmp" /tmp; cd "$cd_to"; exec "$@"'
    )
    return ["unshare", "-m", "sh", "-c", script, "sh", str(own), str(shared), str(root)]


def by_make(name: str, after: tuple[str, ...], *variables: str) -> dict[str, Any]:
    """`make reproduce` as one types it. Make ends with 2 whenever its command did not with 0."""
    command = [*alone(name, ROOT), "make", "reproduce", *variables]
    row = {"name": name, "command": command, **LIMITS, "good": [0, 2]}
    return {**row, "after": after}


def parity(out: Path, model: Path) -> list[dict[str, Any]]:
    """The same tokens' log-probabilities by each engine."""
    script = str(ROOT / "scripts/gpu/parity.py")
    common = ["--model", str(model)]
    samples = str(out / "samples.json")
    data = str(ROOT / ".cache/toy-data/train.parquet")

    def job(name: str, *words: str, after: tuple[str, ...] = ("parity-sample",)) -> dict[str, Any]:
        result = str(out / f"{name}.json")
        command = [PYTHON, script, *words, *common, "--out", result]
        return {"name": name, "command": command, "gib": 8, "limit_s": 240, "after": after}

    made = [job("parity-sample", "sample", "--data", data, after=())]
    made[0]["command"][-1] = samples
    for dtype in ("float32", "bfloat16"):
        made.append(job(f"parity-hf-{dtype}", "hf", "--dtype", dtype, "--samples", samples))
    for engine in ENGINES:
        config = str(out / f"config-{engine}.json")
        words = (engine, "--config", config, "--samples", samples)
        before = ("parity-sample", "te") if engine == "megatron" else ("parity-sample",)
        made.append(job(f"parity-{engine}", *words, after=before))
    variables = json.loads((out / "variables.json").read_text(encoding="utf-8"))
    for row in made:
        row["env"] = variables
    return made


def extension() -> dict[str, Any]:
    """Build TransformerEngine's extension; FSDP needs it too: verl imports Megatron-LM for both."""
    command = ["python3", str(ROOT / "scripts/gpu/env.py"), "--engine", "megatron"]
    command += ["--site", str(ROOT.parent / "site")]
    return {"name": "te", "command": command, "gib": 0, "limit_s": 400}


def seeds(out: Path) -> list[dict[str, Any]]:
    """Three correct seeds of each engine and parity, most of it after the extension is built."""
    te = extension()
    model = ROOT / "recipes/rehearsal/model"
    checks = parity(out, model)
    runs = [reproduce(f"fsdp-{seed}", "fsdp", seed) for seed in SEEDS]
    runs += [reproduce(f"megatron-{seed}", "megatron", seed) for seed in SEEDS]
    for row in runs:
        row["after"] = [te["name"]]
    return [te, checks[0], *runs, *checks[1:]]


def more(_: Path) -> list[dict[str, Any]]:
    """What is missing of five seeds an engine, then the references, then a new seed by each.

    Run folders of seeds that another visit finished belong in runs/ before; they are used again.
    """
    made = [reproduce(f"megatron-{seed}", "megatron", seed) for seed in (101, 103, 105)]
    words = ("MODEL=rehearsal", "PLATFORM=gpu", "ENGINE=megatron")
    made.append(by_make("megatron-104", (), *words, "SEED=104"))
    made += [reproduce(f"fsdp-{seed}", "fsdp", seed) for seed in (104, 105)]
    made += baselines(made)
    made.append(by_make("make-megatron", ("baseline-megatron",), *words))
    made.append(by_make("make-fsdp", ("baseline-fsdp",), "PLATFORM=gpu"))
    return made


def baselines(made: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each engine's reference of five seeds, once its runs in `made` have ended well."""
    rows: list[dict[str, Any]] = []
    for engine in ENGINES:
        before = [row["name"] for row in made if row["name"].startswith(f"{engine}-")]
        name = f"baseline-{engine}"
        command = [*alone(name, ROOT), OPERATOR, "-m", "reprise", "baseline", "rehearsal"]
        command += ["--platform", "gpu", "--engine", engine, "--seeds", "5", "--replace"]
        row = {"name": name, "command": command, **LIMITS}
        rows.append({**row, "after": before})
    return rows


def references(_: Path) -> list[dict[str, Any]]:
    """The extension, five seeds of each engine, then the two references."""
    te = extension()
    pairs = [(engine, seed) for seed in RECORDED for engine in ENGINES]
    made = [reproduce(f"{engine}-{seed}", engine, seed) for engine, seed in pairs]
    for row in made:
        row["after"] = [te["name"]]
        # FAIL against the reference that is to be replaced does not matter; `baseline` itself
        # runs what did not come to its end.
        row["good"] = [0, 1, 2]
    return [te, *made, *baselines(made)]


def claims(_: Path) -> list[dict[str, Any]]:
    """What must fail, what must differ, and what may."""
    made = [
        reproduce(f"frozen-{engine}", engine, 1, "actor_rollout_ref.actor.optim.lr=0")
        for engine in ENGINES
    ]
    for spelling in ("legacy", "read"):
        override = f"rehearsal/overlong={spelling}"
        made.append(reproduce(f"overlong-{spelling}", "fsdp", 1, "--steps=3", override))
    if not OTHER_MEGATRON.exists():
        shutil.copytree(ROOT, OTHER_MEGATRON, symlinks=True, ignore=shutil.ignore_patterns("runs"))
        shutil.rmtree(OTHER_MEGATRON / "third_party/Megatron-LM")
        old = OTHER_MEGATRON / "third_party/Megatron-LM-0.18.0"
        old.rename(OTHER_MEGATRON / "third_party/Megatron-LM")
    made.append(reproduce("megatron-0.18.0", "megatron", 101, "--steps=5", root=OTHER_MEGATRON))
    node = "actor_rollout_ref.actor.megatron"
    as_hy3 = [f"{node}.{part}_offload=true" for part in ("param", "grad", "optimizer")]
    as_hy3.append("actor_rollout_ref.model.use_fused_kernels=true")
    made.append(reproduce("megatron-as-hy3", "megatron", 101, "--steps=5", *as_hy3))
    return made


def sizes(out: Path, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The planner's sizes, as benchmarks/gpu/planner.py lists them; all, or those in `names`."""
    script = str(ROOT / "benchmarks/gpu/planner.py")
    model = str(ROOT / "recipes/rehearsal/model")
    command = [OPERATOR, script, "make", str(out), model]
    if names:
        command += ["--sizes", *names]
    subprocess.run(command, env=IN_PROJECT, check=True)
    made: list[dict[str, Any]] = json.loads((out / "jobs.json").read_text(encoding="utf-8"))
    variables = json.loads((out / "variables.json").read_text(encoding="utf-8"))
    for row in made:
        row["env"] = variables
    return made


def prepare(out: Path) -> None:
    """The variables of a job, and each engine's resolved config, for what runs without Ray."""
    out.mkdir(parents=True, exist_ok=True)
    script = str(ROOT / "benchmarks/gpu/planner.py")
    subprocess.run([OPERATOR, script, "inputs", str(out)], env=IN_PROJECT, check=True)


def collect(out: Path) -> None:
    """Run folders, results and logs, each archive small enough to be sent."""
    pieces = {
        "runs": [ROOT / "runs", OTHER_MEGATRON / "runs"],
        "references": sorted((ROOT / "recipes/rehearsal").glob("reference-gpu-*")),
        "wheels": sorted((ROOT / ".cache/gpu-wheels").glob("*.whl")),
        "results": sorted(path for path in out.rglob("*.json") if path.name != "tokenizer.json"),
        "logs": [*sorted(out.rglob("*.log")), *sorted((ROOT / ".cache").rglob("build.log"))],
    }
    for name, paths in pieces.items():
        there = [path for path in paths if path.exists()]
        if there:
            with tarfile.open(out / f"{name}.tar.xz", "w:xz", preset=2) as tar:
                for path in there:
                    base = next(b for b in (out, *ROOT.parents) if path.is_relative_to(b))
                    tar.add(path, path.relative_to(base))


def main(arguments: list[str]) -> int:
    """Run a stage, or collect."""
    stages = {
        "seeds": seeds,
        "more": more,
        "references": references,
        "claims": claims,
        "sizes": sizes,
    }
    known = len(arguments) >= 2 and arguments[0] in {*stages, "collect"}
    if not known or (len(arguments) > 2 and arguments[0] != "sizes"):
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(arguments[1]).absolute()
    if arguments[0] == "collect":
        collect(out)
        return 0
    if arguments[0] == "references":
        out.mkdir(parents=True, exist_ok=True)
    else:
        prepare(out)
    jobs = sizes(out, arguments[2:]) if arguments[0] == "sizes" else stages[arguments[0]](out)
    (out / "jobs.json").write_text(json.dumps(jobs, indent=1))
    script = str(ROOT / "scripts/gpu/jobs.py")
    command = [sys.executable, script, str(out / "jobs.json"), str(out)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
