"""The commands of a visit to several GPUs, for visit.py: layouts, resume, active, four.

Each list is in the order of its worth, so that it may be stopped anywhere. Commands run side by
side on the same GPUs: what they train is tiny.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

TWO = ("pp2", "ep2", "tp2", "cp2", "two")
ROLLOUT = ("rollout_tp2",)
FOUR = ("pp2_cp2", "pp2_ep2", "tp2_pp2", "four", "rollout_tp4", "rollout_2xtp2", "separate")
ARCHS = ("hy3", "qwen3-moe")
SEED = 1
SIZE = "0.8B"
# recipes/hy3 has both; recipes/rehearsal/engine/megatron.yaml says why the rehearsal has neither.
AS_HY3 = (
    *(f"actor_rollout_ref.actor.megatron.{part}_offload=true" for part in ("param", "optimizer")),
    *("actor_rollout_ref.actor.megatron.grad_offload=true",),
    "actor_rollout_ref.model.use_fused_kernels=true",
)
# A fault of NVLink multicast outlives the program that used it. As in the jobs of Ray:
# recipes/rehearsal/runtime_env_gpu.yaml.
NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}


class Lists:
    """The lists of one visit; `visit` is visit.py, whose paths and commands they use."""

    def __init__(self, visit: ModuleType, out: Path, variables: dict[str, str]) -> None:
        self.visit, self.out, self.variables = visit, out, variables
        self.models = json.loads((out / "models.json").read_text(encoding="utf-8"))

    def run(self, name: str, layout: str, cards: int, *more: str) -> dict[str, Any]:
        """A rehearsal with Megatron in `layout`, in a /tmp of its own, on `cards` GPUs."""
        words = (f"--layout={layout}", *more)
        made: dict[str, Any] = self.visit.reproduce(name, "megatron", SEED, *words)
        # FAIL is a result here, not the end of a list.
        return {**made, "cards": cards, "good": [0, 1, 2], "after": ["te"]}

    def ranks(self, name: str, cards: int, *words: str, gib: float, limit: int) -> dict[str, Any]:
        """A script of the GPU environment as `cards` ranks, without Ray."""
        launcher = str(self.visit.ROOT / "scripts/gpu/ranks.py")
        script = str(self.visit.ROOT / "scripts/gpu" / words[0])
        command = [sys.executable, launcher, str(cards), self.visit.PYTHON, script, *words[1:]]
        row = {"name": name, "command": command, "gib": gib, "limit_s": limit, "cards": cards}
        return {**row, "after": ["te"], "env": self.variables}

    def config(self, layout: str, arch: str = "hy3") -> str:
        """The resolved config that planner.py wrote."""
        name = f"config-megatron-{layout}" + (f"-{arch}" if arch != "hy3" else "")
        return str(self.out / f"{name}.json")

    def model(self) -> dict[str, Any]:
        """Build the tiny Qwen3-MoE, where it is missing."""
        script = str(self.visit.ROOT / "benchmarks/gpu/planner.py")
        command = [self.visit.OPERATOR, script, "build", "qwen3-moe"]
        row = {"name": "model", "command": command, "gib": 0, "limit_s": 400}
        return {**row, "env": {"PYTHONPATH": str(self.visit.ROOT)}}

    def training(self, layouts: Sequence[str], cards: int, arch: str) -> list[dict[str, Any]]:
        """One run a layout; Hy3's are as long as the references that judge them."""
        more = () if arch == "hy3" else (f"--arch={arch}", "--steps=20")
        made = [self.run(f"run-{arch}-{one}", one, cards, *more) for one in layouts]
        for row in made:
            row["after"] += ["model"] if arch != "hy3" else []
        return made

    def weights(self, layouts: Sequence[str], arch: str) -> list[dict[str, Any]]:
        """The same tokens' log-probabilities, and the export, of one GPU and of each layout."""
        samples = str(self.out / f"samples-{arch}.json")
        model = ("--model", self.models[arch])
        data = str(self.visit.ROOT / ".cache/toy-data/train.parquet")
        script = str(self.visit.ROOT / "scripts/gpu/parity.py")
        command = [self.visit.PYTHON, script, "sample", *model, "--data", data, "--out", samples]
        first = f"sample-{arch}"
        sample = {"name": first, "command": command, "gib": 8, "limit_s": 400}
        made: list[dict[str, Any]] = [{**sample, "env": self.variables}]
        made[0]["after"] = ["model"] if arch != "hy3" else []
        for layout in ("one", *layouts):
            cards = 1 if layout == "one" else 2
            name = f"weights-{arch}-{layout}"
            words = ["parity.py", "megatron", *model, "--config", self.config(layout, arch)]
            words += ["--samples", samples, "--out", str(self.out / f"{name}.json")]
            row = self.ranks(name, cards, *words, gib=8, limit=400)
            made.append({**row, "after": [*row["after"], first]})
        return made

    def memory(self, layouts: Sequence[str]) -> list[dict[str, Any]]:
        """Peak memory of one size on each GPU; the one-GPU figures are in measured.json."""
        made = []
        for layout in layouts:
            name = f"{SIZE}-megatron-{layout}"
            words = ["measure.py", "--engine", "megatron", "--config", self.config(layout)]
            words += ["--model", str(self.out / SIZE), "--tokens", "8192"]
            words += ["--variants", "recompute,plain", "--out", str(self.out / f"{name}.json")]
            made.append(self.ranks(f"memory-{layout}", 2, *words, gib=24, limit=400))
        return made

    def layouts(self) -> list[dict[str, Any]]:
        """Hy3 in each layout, its weights and memory, then Qwen3-MoE."""
        hy3, qwen = ARCHS
        return [
            self.visit.extension(),
            self.model(),
            *self.training((*TWO, *ROLLOUT), 2, hy3),
            *self.weights(TWO, hy3),
            *self.memory(TWO),
            *self.training((*TWO, *ROLLOUT), 2, qwen),
            *self.weights(TWO, qwen),
        ]

    def resume(self) -> list[dict[str, Any]]:
        """Saved under each layout; then loaded under each, what people ask for first."""
        common = ("--model", self.models["hy3"])
        made = [self.visit.extension()]
        for layout in TWO:
            words = ["resume.py", "save", *common, "--config", self.config(layout)]
            words += ["--to", str(self.out / "saved" / layout)]
            words += ["--out", str(self.out / f"save-{layout}.json")]
            made.append(self.ranks(f"save-{layout}", 2, *words, gib=8, limit=240))
        return made + [self.load(*triple) for triple in self.pairs()]

    @staticmethod
    def pairs() -> list[tuple[str, str, str]]:
        """Form, saved under, loaded under; each once, in the order of worth."""
        other = [(one, two) for one in TWO for two in TWO if one != two]
        control = [pair for pair in other if "two" in pair]
        ordered = [("plain", one, one) for one in TWO]
        for some in (control, [pair for pair in other if "pp2" in pair], other):
            for form in ("reshardable", "plain"):
                ordered += [(form, one, two) for one, two in some]
        ordered += [("reshardable", one, one) for one in TWO]
        return list(dict.fromkeys(ordered))

    def load(self, form: str, saved: str, under: str) -> dict[str, Any]:
        """Load under one layout what was saved under another. A refusal is a result."""
        name = f"load-{form}-{saved}-{under}"
        words = ["resume.py", "load", "--model", self.models["hy3"], "--form", form]
        words += ["--config", self.config(under), "--to", str(self.out / "saved" / saved)]
        words += ["--out", str(self.out / f"{name}.json")]
        row = self.ranks(name, 2, *words, gib=8, limit=240)
        return {**row, "good": [0, 1], "after": [f"save-{saved}"]}

    def active(self) -> list[dict[str, Any]]:
        """The doctor's all-reduce on NCCL; a rank killed in a step, and the run resumed by verl."""
        steps = ("--steps=12",)
        kept = (
            "trainer.save_freq=5",
            "trainer.resume_mode=auto",
            f"trainer.default_local_dir={self.out / 'saved/active'}",
        )
        killed = self.run("killed", "two", 2, *steps, *kept)
        inner = killed["command"]
        first = inner.index(self.visit.OPERATOR)
        script = str(self.visit.ROOT / "scripts/gpu/kill_rank.py")
        guard = [self.visit.OPERATOR, script, "--step", "7", "--out", str(self.out / "killed.json")]
        killed |= {"command": [*inner[:first], *guard, "--", *inner[first:]], "good": [0]}
        resumed = self.run("resumed", "two", 2, *steps, *kept)
        resumed["after"] = ["killed"]
        # The same steps of the same seed without a fault.
        whole = self.run("whole", "two", 2, *steps)
        return [self.visit.extension(), self.all_reduce(2), killed, whole, resumed]

    def all_reduce(self, cards: int) -> dict[str, Any]:
        """scripts/allreduce.py, which `reprise doctor --active` runs on each host."""
        script = str(self.visit.ROOT / "scripts/allreduce.py")
        launcher = str(self.visit.ROOT / "scripts/gpu/ranks.py")
        line = (
            'A_RANK=$RANK A_WORLD=$WORLD_SIZE A_ADDRESS=$MASTER_ADDR A_PORT=$MASTER_PORT exec "$@"'
        )
        run = [self.visit.PYTHON, "-I", script]
        command = [sys.executable, launcher, str(cards), "sh", "-c", line, "sh", *run]
        settings = {"A_BACKEND": "nccl", "A_DEVICE": "cuda", "A_MIB": "1024"}
        row = {"name": "all-reduce", "command": command, "gib": 4, "limit_s": 120, "cards": cards}
        return {**row, "env": {**NO_MULTICAST, **settings}}

    def four(self) -> list[dict[str, Any]]:
        """Hy3's layout in miniature, with the offload and fused kernels of its recipe."""
        runs = [self.run(f"run-hy3-{one}", one, 4, "--steps=20", *AS_HY3) for one in FOUR]
        return [self.visit.extension(), self.all_reduce(4), *runs]


def chosen(jobs: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The commands whose names begin with one of `names`, in that order, and those before them.

    Raises SystemExit for a name with which none begins.
    """
    if not names:
        return list(jobs)
    by_name = {job["name"]: job for job in jobs}
    wanted: dict[str, None] = {}

    def take(name: str) -> None:
        for before in by_name[name].get("after", ()):
            take(before)
        wanted.setdefault(name)

    for prefix in names:
        found = [name for name in by_name if name.startswith(prefix)]
        if not found:
            raise SystemExit(f"no command begins with {prefix}; there are {' '.join(by_name)}")
        for name in found:
            take(name)
    return [by_name[name] for name in wanted]


def stage(
    visit: ModuleType, which: str, out: Path, names: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The list of a stage, with the files that its commands read written to `out`.

    Raises SystemExit for an `out` that the runs, each with its own /tmp, would not see.
    """
    if out.is_relative_to("/tmp") and not out.is_relative_to(visit.ROOT.parent):  # noqa: S108
        raise SystemExit(f"{out} is in /tmp: name a folder in {visit.ROOT.parent}")
    if out.is_relative_to(visit.ROOT):
        raise SystemExit(f"{out} is in the project, which Ray packs: name a folder beside it")
    out.mkdir(parents=True, exist_ok=True)
    script = str(visit.ROOT / "benchmarks/gpu/planner.py")
    command = [visit.OPERATOR, script, "inputs", str(out), "--sizes", SIZE, "--layouts"]
    command += ["one", *TWO, *ROLLOUT] if which != "four" else FOUR
    subprocess.run(command, env=visit.IN_PROJECT, check=True)
    os.environ.setdefault("JOBS_AT_ONCE", "16")
    os.environ.setdefault("JOBS_STAGGER_SECONDS", "2")
    variables = json.loads((out / "variables.json").read_text(encoding="utf-8"))
    jobs: list[dict[str, Any]] = getattr(Lists(visit, out, {**variables, **NO_MULTICAST}), which)()
    for job in jobs:
        job["env"] = {**NO_MULTICAST, **job.get("env", {})}
    return chosen(jobs, names)
