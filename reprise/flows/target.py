"""Platform, engine and layout of a rehearsal, and what depends on them."""

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

__all__ = ["DEFAULT", "ENGINES", "LAYOUTS", "PLATFORMS", "Target"]

PLATFORMS = ("cpu", "gpu")
ENGINES = ("fsdp", "megatron")
_ONE_GPU = "one"
LAYOUTS = (
    *(_ONE_GPU, "two", "pp2", "ep2", "tp2", "cp2", "rollout_tp2"),
    *("four", "pp2_cp2", "pp2_ep2", "tp2_pp2", "rollout_tp4", "rollout_2xtp2", "separate"),
)
"""Groups of recipes/rehearsal/layout: parallel sizes for one, two and four GPUs."""
_GPU_ENVIRONMENT = ".venv-gpu"


@dataclass(frozen=True, slots=True)
class Target:
    """A platform and an engine, groups of recipes/rehearsal: cpu/fsdp, gpu/fsdp, gpu/megatron.

    `layout` names the parallel sizes, for gpu/megatron.
    """

    platform: str = "cpu"
    engine: str = "fsdp"
    layout: str = _ONE_GPU

    def check(self) -> None:
        """Raise OperatorError for an unknown platform, engine or layout, or a combination."""
        for text, value, known in (
            ("rehearsal-platform.unknown", self.platform, PLATFORMS),
            ("rehearsal-engine.unknown", self.engine, ENGINES),
            ("rehearsal-layout.unknown", self.layout, LAYOUTS),
        ):
            if value not in known:
                raise OperatorError(text, value, known=", ".join(known))
        if self.platform == "cpu" and self.engine == "megatron":
            raise OperatorError("rehearsal-engine.needs-gpu", "megatron")
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
        chosen = [f"rehearsal/platform={self.platform}", f"rehearsal/engine={self.engine}"]
        return [*chosen, f"rehearsal/layout={self.layout}"] if self.laid_out else chosen

    def python(self, project: Project) -> Path:
        """The interpreter that has torch, vLLM, and on a GPU Megatron-LM's needs.

        Raises CannotTell when its environment is not installed.
        """
        if self.platform == "cpu":
            python = project.rehearsal_python
            if not python.exists():
                raise CannotTell("rehearsal-environment.missing", str(python))
            return python
        python = project.root / _GPU_ENVIRONMENT / "bin" / "python"
        if not python.exists():
            raise CannotTell("rehearsal-environment.missing-gpu", str(python))
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
        provided = project.root / _GPU_ENVIRONMENT / "provided.json"
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
