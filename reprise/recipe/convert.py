"""The optional conversion of Hugging Face weights to an MCore checkpoint: limits, command, result.

It is optional, because verl loads Hugging Face weights online; it saves the conversion at each
start. The limits are those of verl's scripts/converter_hf_to_mcore.py.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from reprise.core.findings import Report
from reprise.models.families import families
from reprise.models.tensorfiles import dist_faults
from reprise.recipe.model import Model

__all__ = ["Conversion", "check_conversion", "check_mcore"]


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
        """The command for the training container, on one node."""
        arguments = ["torchrun", "--standalone", f"--nproc_per_node={self.processes}"]
        arguments += ["scripts/converter_hf_to_mcore.py", "--hf_model_path", str(self.source)]
        arguments += ["--output_path", str(self.target)]
        if self.processes > 1:
            arguments += ["--pp_size", str(self.pp), "--ep_size", str(self.ep)]
        if model.experts:
            arguments.append("--use_cpu_initialization")
        return shlex.join(arguments)


def check_conversion(report: Report, wanted: Conversion, model: Model) -> None:
    """Check the converter's limits before anything runs; the command goes into the data."""
    if model.experts and not model.known.converted:
        report.failed("recipe-convert-family.unsupported", model.family)
    report.settle("recipe-convert-family")
    rule = "recipe-convert-processes"
    if wanted.processes > 1 and not model.known.converted:
        report.failed(
            "recipe-convert-processes.one-only",
            f"PP {wanted.pp} x EP {wanted.ep}",
            family=model.family or "unknown",
            parallel=", ".join(
                sorted(name for name, known in families().items() if known.converted)
            ),
        )
    experts = model.experts or 0
    if wanted.ep > 1 and (not experts or experts % wanted.ep):
        report.failed(
            "recipe-convert-experts.not-divisible", f"EP {wanted.ep}", experts=experts, ep=wanted.ep
        )
    report.settle(rule)
    rule = "recipe-convert-output"
    if wanted.target.exists() and (not wanted.target.is_dir() or any(wanted.target.iterdir())):
        report.failed("recipe-convert-output.not-empty", str(wanted.target))
    report.settle(rule)
    _source(report, wanted.source)
    report.data["job"] = wanted.command(model)
    report.data["then"] = f"reprise recipe convert --verify {shlex.quote(str(wanted.target))}"


def _source(report: Report, source: Path) -> None:
    """The weights may be where the training container runs, and not here."""
    rule = "recipe-convert-source"
    if not source.exists():
        report.note("recipe-convert-source.not-here", str(source))
    elif not (source / "config.json").is_file():
        report.failed("recipe-convert-source.no-config", str(source))
    else:
        report.passed(rule)


def check_mcore(report: Report, folder: Path) -> None:
    """Check that an MCore checkpoint is complete: shards, .metadata, common.pt, metadata.json."""
    rule = "recipe-convert-complete"
    if not folder.is_dir():
        report.failed("recipe-convert-complete.no-folder", str(folder))
        return
    for fault in dist_faults(folder):
        report.failed("recipe-convert-complete.damaged", str(fault.path), fault=fault.message)
    shards = list(folder.glob("*.distcp"))
    report.data["shards"] = len(shards)
    report.data["bytes"] = sum(path.stat().st_size for path in shards)
    report.settle(rule)
