#!/usr/bin/env python3
"""The commands of a visit to a GPU, for jobs.py: each stage is one list.

    python3 scripts/gpu/visit.py STAGE OUT [NAME ...]  writes OUT/jobs.json and runs it;
        NAMEs: the sizes, or names of jobs or their beginnings (sglang, real)
    python3 scripts/gpu/visit.py collect OUT           packs what came out into OUT/*.tar.xz

Stages: `sglang` (SGLang as rollout: seeds and references of both Qwen3 shapes, the recipes'
options, packed experts, parity with vLLM), `real` (Qwen3-8B's true size), `both` (these two),
`references` (build TransformerEngine's extension, five seeds of each engine, then their
references), `parity` (the same tokens' log-probabilities by each engine) and `sizes` (peak memory,
of the sizes NAME; benchmarks/gpu/planner.py). On two GPUs (layouts.py): `layouts` (runs, weights
and memory of each layout), `resume` (checkpoints from one layout to another) and `active` (an
all-reduce, a killed rank); on four: `four`. There NAME is the beginning of a command's name, and
only such commands run, in the order of the NAMEs; JOBS_SECONDS ends the starting. OUT is beside the
project, not in it: Ray would pack it, and runs that have their own /tmp see it. Run in the project,
where `make env` and env.py have been. docs/gpu.md says what was run; benchmarks/gpu/history has the
lists of earlier visits.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PYTHON = str(ROOT / ".venv-gpu/bin/python")
OPERATOR = str(ROOT / ".venv/bin/python")
RECORDED = (101, 102, 103, 104, 105)
ENGINES = ("fsdp", "megatron")
# Stages of visit_sglang.
SGLANG = ("sglang", "real", "both")
# Small runs share a GPU: weights, vLLM's start-up and its cache of 1 GiB.
# Thirty steps of Megatron-LM took 720 s where Python writes no bytecode and every start compiles.
LIMITS = {"gib": 12, "limit_s": 1000}
IN_PROJECT = {**os.environ, "PYTHONPATH": str(ROOT)}


def reproduce(
    name: str,
    engine: str,
    seed: int,
    *more: str,
    place: Sequence[str] = (),
    root: Path = ROOT,
) -> dict[str, Any]:
    """A rehearsal run: options and overrides in `more`, `place` the words of another rollout.

    1 and 2 are verdicts too: whether it came to its end is in its run.json.
    """
    words = [OPERATOR, "-m", "reprise", "reproduce", "rehearsal", "--platform", "gpu"]
    words += ["--engine", engine, *place, "--seed", str(seed)]
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


def collect(out: Path, more_runs: Sequence[Path] = ()) -> None:
    """Run folders, results and logs, each archive small enough to be sent."""
    pieces = {
        "runs": [ROOT / "runs", *more_runs],
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


def parity_alone(out: Path) -> list[dict[str, Any]]:
    """The extension, then parity of the shipped start model."""
    return [extension(), *parity(out, ROOT / "recipes/rehearsal/model")]


def chosen(jobs: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The jobs of that name or, where none has it, that begin so, and those that they wait for."""
    if not names:
        return list(jobs)
    known = {row["name"] for row in jobs}
    exact = known.intersection(names)
    beginnings = tuple(name for name in names if name not in exact)
    wanted = exact | {name for name in known if name.startswith(beginnings)}
    for row in reversed(jobs):
        if row["name"] in wanted:
            wanted |= set(row.get("after", ()))
    kept = [row for row in jobs if row["name"] in wanted]
    for row in kept:
        row["once"] = [name for name in row.get("once", ()) if name in wanted]
    return kept


def run(jobs: Sequence[dict[str, Any]], out: Path) -> int:
    """Write OUT/jobs.json and run it; jobs.py's exit code."""
    (out / "jobs.json").write_text(json.dumps(jobs, indent=1))
    script = str(ROOT / "scripts/gpu/jobs.py")
    command = [sys.executable, script, str(out / "jobs.json"), str(out)]
    return subprocess.run(command, check=False).returncode


def several_gpus(stage: str, out: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """The list of a stage of layouts.py, and what its commands read. Raises SystemExit."""
    where = Path(__file__).with_name("layouts.py")
    spec = importlib.util.spec_from_file_location("layouts", where)
    assert spec is not None and spec.loader is not None
    lists = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lists)
    made: list[dict[str, Any]] = lists.stage(sys.modules[__name__], stage, out, names)
    return made


STAGES = ("references", "parity", "sizes", "collect")
SEVERAL = ("layouts", "resume", "active", "four")


def main(arguments: list[str]) -> int:
    """Run a stage, or collect."""
    stages = (*STAGES, *SGLANG, *SEVERAL)
    known = len(arguments) >= 2 and arguments[0] in stages
    if not known or (len(arguments) > 2 and arguments[0] not in ("sizes", *SGLANG, *SEVERAL)):
        print(__doc__, file=sys.stderr)
        return 2
    stage, out = arguments[0], Path(arguments[1]).absolute()
    if stage == "collect":
        collect(out)
        return 0
    if stage in SGLANG:
        import visit_sglang

        os.environ.setdefault("JOBS_AT_ONCE", "6")
        jobs = getattr(visit_sglang, stage)(out)
        return run(chosen(jobs, arguments[2:]), out)
    if stage == "references":
        out.mkdir(parents=True, exist_ok=True)
        return run(references(out), out)
    if stage in SEVERAL:
        return run(several_gpus(stage, out, arguments[2:]), out)
    prepare(out)
    return run(parity_alone(out) if stage == "parity" else sizes(out, arguments[2:]), out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
