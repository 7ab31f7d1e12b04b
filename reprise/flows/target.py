"""Platform, engine and layout of a rehearsal, and what depends on them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.project import Project
from reprise.lock.model import Machine
from reprise.lock.read import read_lock
from reprise.machines.registry import machine_named
from reprise.recipe.config.verltree import VerlTree, find_tree
from reprise.recipe.folders import recipe_folder
from reprise.rehearsal.shapes import DEFAULT_ARCH

__all__ = [
    "DEFAULT",
    "ENGINES",
    "LAYOUTS",
    "LAYOUT_CHOICE",
    "PLATFORMS",
    "ROLLOUTS",
    "Target",
    "gpu_environment",
]

PLATFORMS = ("cpu", "gpu")
ENGINES = ("fsdp", "megatron")
ROLLOUTS = ("vllm", "sglang")
_ONE_GPU = "one"
LAYOUTS = (
    *(_ONE_GPU, "two", "pp2", "ep2", "tp2", "cp2", "rollout_tp2"),
    *("four", "pp2_cp2", "pp2_ep2", "tp2_pp2", "rollout_tp4", "rollout_2xtp2", "separate"),
)
"""Groups of recipes/rehearsal/layout: parallel sizes for one, two and four GPUs."""
LAYOUT_CHOICE = "rehearsal/layout="
"""How an override that chooses a layout begins."""
_OF_SGLANG = "runtime_env_gpu_sglang.yaml"


def gpu_environment(rollout: str = "vllm") -> str:
    """The folder of the GPU environment that has a rollout engine; scripts/gpu/env.py makes it.

    The two pin different releases of the same packages, so that one environment cannot have both.
    """
    return ".venv-gpu" if rollout == "vllm" else f".venv-gpu-{rollout}"


@dataclass(frozen=True, slots=True)
class Target:
    """A platform and an engine, groups of recipes/rehearsal: cpu/fsdp, gpu/fsdp, gpu/megatron.

    On a GPU also the engine of the rollout, which has an environment of its own.
    `layout` names the parallel sizes, for gpu/megatron.
    """

    platform: str = "cpu"
    engine: str = "fsdp"
    layout: str = _ONE_GPU
    rollout: str = "vllm"

    def check(self) -> None:
        """Raise OperatorError for an unknown platform, engine or layout, or a combination."""
        for text, value, known in (
            ("rehearsal-platform.unknown", self.platform, PLATFORMS),
            ("rehearsal-engine.unknown", self.engine, ENGINES),
            ("rehearsal-layout.unknown", self.layout, LAYOUTS),
            ("rehearsal-rollout.unknown", self.rollout, ROLLOUTS),
        ):
            if value not in known:
                raise OperatorError(text, value, known=", ".join(known))
        if self.platform == "cpu" and self.engine == "megatron":
            raise OperatorError("rehearsal-engine.needs-gpu", "megatron")
        if self.platform == "cpu" and self.rollout == "sglang":
            raise OperatorError("rehearsal-rollout.needs-gpu", "sglang")
        if self.laid_out and (self.platform, self.engine) != ("gpu", "megatron"):
            raise OperatorError(
                "rehearsal-layout.needs-megatron", self.layout, place=self.name, layout=self.layout
            )

    @property
    def default(self) -> bool:
        """Whether platform and engine are those that the recipe itself names."""
        return self.name == DEFAULT.name

    @property
    def laid_out(self) -> bool:
        """Whether parallel sizes other than those of one GPU are chosen."""
        return self.layout != _ONE_GPU

    @property
    def name(self) -> str:
        """As it is written: gpu/megatron, gpu/megatron/sglang."""
        more = "" if self.rollout == DEFAULT.rollout else f"/{self.rollout}"
        return f"{self.platform}/{self.engine}{more}"

    @property
    def options(self) -> str:
        """The options of `reprise reproduce` and `baseline` that choose this place."""
        more = "" if self.rollout == DEFAULT.rollout else f" --rollout {self.rollout}"
        return f"--platform {self.platform} --engine {self.engine}{more}"

    def recording(self, arch: str) -> str:
        """The options of `reprise baseline` that record the runs of the tiny model `arch` here."""
        return self.options + ("" if arch == DEFAULT_ARCH else f" --arch {arch}")

    @property
    def machine(self) -> Machine:
        """The machine of versions.lock whose entries a run here uses."""
        own = self.platform == "gpu" and self.rollout != "vllm"
        return machine_named(f"gpu-{self.rollout}" if own else self.platform).lock

    def overrides(self) -> list[str]:
        """The Hydra overrides that choose this place; none for the recipe's own."""
        if self.default:
            return []
        # The recipes with SGLang are those of S5000: their Megatron settings, not those of H20.
        sglang = self.rollout == "sglang"
        engine = "megatron-s5000" if sglang and self.engine == "megatron" else self.engine
        chosen = [f"rehearsal/platform={self.platform}", f"rehearsal/engine={engine}"]
        chosen += [f"rehearsal/rollout={self.rollout}"] if sglang else []
        return [*chosen, f"{LAYOUT_CHOICE}{self.layout}"] if self.laid_out else chosen

    def python(self, project: Project) -> Path:
        """The interpreter that has torch, vLLM, and on a GPU Megatron-LM's needs.

        Raises CannotTell when its environment is not installed.
        """
        if self.platform == "cpu":
            python = project.rehearsal_python
            if not python.exists():
                raise CannotTell("rehearsal-environment.missing", str(python))
            return python
        python = project.root / gpu_environment(self.rollout) / "bin" / "python"
        if not python.exists():
            raise CannotTell("rehearsal-environment.missing-gpu", str(python), rollout=self.rollout)
        return python

    def tree(self, release: str, project: Project) -> VerlTree:
        """The verl that runs here: the installed `release`, on a GPU the checkout of the lock.

        Raises CannotTell when it is missing.
        """
        if self.platform == "cpu":
            return find_tree(project.root, "", release)
        locked = read_lock(project.lock).tree["verl"]
        found = find_tree(project.root, "verl", release)
        if found.version != locked.version:
            raise CannotTell(
                "rehearsal-verl.other-version",
                str(project.root / (locked.path or "third_party/verl")),
                version=locked.version,
                want=locked.want,
                found=found.label(),
            )
        return found

    def device(self, project: Project) -> dict[str, Any] | None:
        """The GPUs and their driver, and what the machine itself provides; None on a CPU."""
        if self.platform == "cpu":
            return None
        provided = project.root / gpu_environment(self.rollout) / "provided.json"
        versions = json.loads(provided.read_text(encoding="utf-8")) if provided.is_file() else {}
        gpus = machine_named(self.platform).accelerator.inventory()
        return {"cards": gpus, "provided": versions}

    def runtime_env(self, recipe: Path) -> Path:
        """The file of the recipe's folder `recipe` with the variables of a job here."""
        if self.platform == "cpu":
            return recipe / "runtime_env.yaml"
        return recipe / ("runtime_env_gpu.yaml" if self.rollout == "vllm" else _OF_SGLANG)

    def variables(self, project: Project) -> dict[str, str]:
        """Variables of a job here that depend on the machine.

        SGLang's memory saver is preloaded into its processes and needs CUDA's runtime library,
        which torch brings in a folder that the loader does not search.
        """
        if self.rollout != "sglang":
            return {}
        packages = project.root / gpu_environment(self.rollout) / "lib"
        found = sorted(packages.glob("python3*/site-packages/nvidia/*/lib/libcudart.so.*"))
        folders = dict.fromkeys(str(path.parent) for path in found)
        before = os.environ.get("LD_LIBRARY_PATH", "")
        return {"LD_LIBRARY_PATH": ":".join([*folders, before]).strip(":")} if folders else {}

    def reference(self, project: Project, model: str, arch: str = DEFAULT_ARCH) -> Path:
        """The folder of the runs of the tiny model `arch` that were recorded here."""
        folder = recipe_folder(project.recipes, model) / "reference"
        names = [] if self.default else [self.platform, self.engine]
        names += [] if self.rollout == DEFAULT.rollout else [self.rollout]
        names += [] if arch == DEFAULT_ARCH else [arch]
        return folder.with_name("-".join([folder.name, *names]))


DEFAULT = Target()
"""A machine without a GPU: what the recipe itself names."""
