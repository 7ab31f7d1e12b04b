"""Platform and engine of a rehearsal, and what depends on them."""

from __future__ import annotations

import json
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

__all__ = ["DEFAULT", "ENGINES", "PLATFORMS", "ROLLOUTS", "Target", "gpu_environment"]

PLATFORMS = ("cpu", "gpu")
ENGINES = ("fsdp", "megatron")
ROLLOUTS = ("vllm", "sglang")


def gpu_environment(rollout: str = "vllm") -> str:
    """The folder of the GPU environment that has the rollout engine, as scripts/gpu/env.py makes it.

    The two pin different releases of the same packages, so that one environment cannot have both.
    """
    return ".venv-gpu" if rollout == "vllm" else f".venv-gpu-{rollout}"


@dataclass(frozen=True, slots=True)
class Target:
    """A platform and an engine, groups of recipes/rehearsal: cpu/fsdp, gpu/fsdp, gpu/megatron.

    On a GPU also the engine of the rollout, which has an environment of its own.
    """

    platform: str = "cpu"
    engine: str = "fsdp"
    rollout: str = "vllm"

    def check(self) -> None:
        """Raise OperatorError for an unknown platform, engine or combination."""
        for text, value, known in (
            ("rehearsal-platform.unknown", self.platform, PLATFORMS),
            ("rehearsal-engine.unknown", self.engine, ENGINES),
        ):
            if value not in known:
                raise OperatorError(text, value, known=", ".join(known))
        if self.platform == "cpu" and self.engine == "megatron":
            raise OperatorError("rehearsal-engine.needs-gpu", "megatron")

    @property
    def default(self) -> bool:
        """Whether this is the target that the recipe itself names."""
        return self == DEFAULT

    @property
    def name(self) -> str:
        """As it is written: gpu/megatron."""
        return f"{self.platform}/{self.engine}"

    @property
    def machine(self) -> Machine:
        """The machine of versions.lock whose entries a run here uses."""
        return machine_named(self.platform).lock

    def overrides(self) -> list[str]:
        """The Hydra overrides that choose this place; none for the recipe's own."""
        if self.default:
            return []
        return [f"rehearsal/platform={self.platform}", f"rehearsal/engine={self.engine}"]

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
        return recipe / ("runtime_env.yaml" if self.platform == "cpu" else "runtime_env_gpu.yaml")

    def reference(self, project: Project, model: str) -> Path:
        """The folder of the runs that were recorded here."""
        folder = recipe_folder(project.recipes, model) / "reference"
        if self.default:
            return folder
        return folder.with_name(f"{folder.name}-{self.platform}-{self.engine}")


DEFAULT = Target()
"""A machine without a GPU: what the recipe itself names."""
