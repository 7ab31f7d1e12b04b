#!/usr/bin/env python3
"""The commands of the visits of 2026-11-29 to two GPUs, kept as the record of what was run.

    python3 benchmarks/gpu/history/visits_2026_11_29.py STAGE OUT

Stages: `seeds` (parity and three seeds of each engine), `more` (seeds up to five, their references,
and what `make` does with them), `claims` (frozen actors, the overlong penalty through both
spellings of its keys, the other Megatron-LM) and `collect`. They need run folders and a checkout
that those machines had. docs/gpu.md has the results; for a new visit
use scripts/gpu/visit.py.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/gpu"))

import visit  # noqa: E402

SEEDS = (101, 102, 103)
OTHER_MEGATRON = ROOT.parent / f"{ROOT.name}-0.18.0"


def by_make(name: str, after: tuple[str, ...], *variables: str) -> dict[str, Any]:
    """`make reproduce` as one types it. Make ends with 2 whenever its command did not with 0."""
    command = [*visit.alone(name, ROOT), "make", "reproduce", *variables]
    row = {"name": name, "command": command, **visit.LIMITS, "good": [0, 2]}
    return {**row, "after": after}


def seeds(out: Path) -> list[dict[str, Any]]:
    """Three correct seeds of each engine and parity, most of it after the extension is built."""
    te = visit.extension()
    model = ROOT / "recipes/rehearsal/model"
    checks = visit.parity(out, model)
    runs = [visit.reproduce(f"fsdp-{seed}", "fsdp", seed) for seed in SEEDS]
    runs += [visit.reproduce(f"megatron-{seed}", "megatron", seed) for seed in SEEDS]
    for row in runs:
        row["after"] = [te["name"]]
    return [te, checks[0], *runs, *checks[1:]]


def more(_: Path) -> list[dict[str, Any]]:
    """What is missing of five seeds an engine, then the references, then a new seed by each.

    Run folders of seeds that another visit finished belong in runs/ before; they are used again.
    """
    made = [visit.reproduce(f"megatron-{seed}", "megatron", seed) for seed in (101, 103, 105)]
    words = ("MODEL=rehearsal", "PLATFORM=gpu", "ENGINE=megatron")
    made.append(by_make("megatron-104", (), *words, "SEED=104"))
    made += [visit.reproduce(f"fsdp-{seed}", "fsdp", seed) for seed in (104, 105)]
    made += visit.baselines(made)
    made.append(by_make("make-megatron", ("baseline-megatron",), *words))
    made.append(by_make("make-fsdp", ("baseline-fsdp",), "PLATFORM=gpu"))
    return made


def claims(_: Path) -> list[dict[str, Any]]:
    """What must fail, what must differ, and what may."""
    made = [
        visit.reproduce(f"frozen-{engine}", engine, 1, "actor_rollout_ref.actor.optim.lr=0")
        for engine in visit.ENGINES
    ]
    for spelling in ("legacy", "read"):
        override = f"rehearsal/overlong={spelling}"
        made.append(visit.reproduce(f"overlong-{spelling}", "fsdp", 1, "--steps=3", override))
    if not OTHER_MEGATRON.exists():
        shutil.copytree(ROOT, OTHER_MEGATRON, symlinks=True, ignore=shutil.ignore_patterns("runs"))
        shutil.rmtree(OTHER_MEGATRON / "third_party/Megatron-LM")
        old = OTHER_MEGATRON / "third_party/Megatron-LM-0.18.0"
        old.rename(OTHER_MEGATRON / "third_party/Megatron-LM")
    made.append(
        visit.reproduce("megatron-0.18.0", "megatron", 101, "--steps=5", root=OTHER_MEGATRON)
    )
    node = "actor_rollout_ref.actor.megatron"
    as_hy3 = [f"{node}.{part}_offload=true" for part in ("param", "grad", "optimizer")]
    as_hy3.append("actor_rollout_ref.model.use_fused_kernels=true")
    made.append(visit.reproduce("megatron-as-hy3", "megatron", 101, "--steps=5", *as_hy3))
    return made


def main(arguments: list[str]) -> int:
    """Run a stage, or collect."""
    stages = {"seeds": seeds, "more": more, "claims": claims}
    if len(arguments) != 2 or arguments[0] not in {*stages, "collect"}:
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(arguments[1]).absolute()
    if arguments[0] == "collect":
        visit.collect(out, [OTHER_MEGATRON / "runs"])
        return 0
    visit.prepare(out)
    return visit.run(stages[arguments[0]](out), out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
