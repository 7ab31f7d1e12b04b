"""The optional conversion of Hugging Face weights to an MCore checkpoint: limits, command, result.

verl loads Hugging Face weights online, so that nobody needs this; it saves the conversion at each
start. The limits are those of verl's scripts/converter_hf_to_mcore.py.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from reprise.core.findings import Report
from reprise.models.tensorfiles import dist_faults
from reprise.recipe.model import Model

__all__ = ["Conversion", "check_conversion", "check_mcore"]

# The families that the converter takes apart over several processes.
_PARALLEL = frozenset({"qwen2_moe", "qwen3_moe", "deepseek_v3"})


@dataclass(frozen=True, slots=True)
class Conversion:
    """One conversion: from a Hugging Face folder to a new one, over PP x EP processes."""

    source: Path
    target: Path
    pp: int = 1
    ep: int = 1

    @property
    def processes(self) -> int:
        """One process for each pipeline and expert rank; tensor parallelism is always 1."""
        return self.pp * self.ep

    def command(self, model: Model) -> str:
        """What to run in the training container, on one node."""
        words = ["torchrun", "--standalone", f"--nproc_per_node={self.processes}"]
        words += ["scripts/converter_hf_to_mcore.py", "--hf_model_path", str(self.source)]
        words += ["--output_path", str(self.target)]
        if self.processes > 1:
            words += ["--pp_size", str(self.pp), "--ep_size", str(self.ep)]
        if model.experts:
            words.append("--use_cpu_initialization")
        return shlex.join(words)


def check_conversion(report: Report, wanted: Conversion, model: Model) -> None:
    """Check the converter's limits before anything runs; the command goes into the data."""
    if model.experts and model.family not in _PARALLEL:
        report.failed("recipe-convert-family.verl-s-converter", model.family)
    report.settle("recipe-convert-family")
    rule = "recipe-convert-processes"
    if wanted.processes > 1 and model.family not in _PARALLEL:
        report.failed(
            rule,
            f"PP {wanted.pp} x EP {wanted.ep}",
            f"{model.family or 'this model'} converts in one process: several only for "
            f"{', '.join(sorted(_PARALLEL))}",
            "leave --pp and --ep out",
        )
    experts = model.experts or 0
    if wanted.ep > 1 and (not experts or experts % wanted.ep):
        report.failed(
            "recipe-convert-experts.experts-do-split",
            f"EP {wanted.ep}",
            experts=experts,
            ep=wanted.ep,
        )
    report.settle(rule)
    rule = "recipe-convert-output"
    if wanted.target.exists() and (not wanted.target.is_dir() or any(wanted.target.iterdir())):
        report.failed(
            rule,
            str(wanted.target),
            "not empty: the converter would skip the work without a word",
            "name a folder that does not exist yet; nothing is removed for you",
        )
    report.settle(rule)
    _source(report, wanted.source)
    report.data["job"] = wanted.command(model)
    report.data["then"] = f"reprise recipe convert --verify {shlex.quote(str(wanted.target))}"


def _source(report: Report, source: Path) -> None:
    """The weights may lie where the training container runs, and not here."""
    rule = "recipe-convert-source"
    if not source.exists():
        report.note(rule, str(source), "is not seen from here, so that it was not looked at")
    elif not (source / "config.json").is_file():
        fix = "name the folder of the Hugging Face weights"
        report.failed(rule, str(source), "expected a folder with config.json, found none", fix)
    else:
        report.passed(rule)


def check_mcore(report: Report, folder: Path) -> None:
    """Is an MCore checkpoint whole: shards as long as .metadata says, common.pt, metadata.json."""
    rule = "recipe-convert-complete"
    if not folder.is_dir():
        report.failed(rule, str(folder), "expected a folder, found none", "check the path")
        return
    for fault in dist_faults(folder):
        fix = "convert again into a new folder, with verl's own script"
        report.failed(rule, str(fault.path), fault.message, fix)
    shards = list(folder.glob("*.distcp"))
    report.data["shards"] = len(shards)
    report.data["bytes"] = sum(path.stat().st_size for path in shards)
    report.settle(rule)
