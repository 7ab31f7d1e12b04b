"""The optional conversion of Hugging Face weights to an MCore checkpoint: limits, command, result.

verl loads Hugging Face weights online, so that nobody needs this; it saves the conversion at each
start. The limits are those of verl's scripts/converter_hf_to_mcore.py.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from reprise.findings import Report
from reprise.recipe.model import Model

__all__ = ["Conversion", "check_conversion", "check_mcore"]

# The families that the converter takes apart over several processes.
_PARALLEL = frozenset({"qwen2_moe", "qwen3_moe", "deepseek_v3"})
_SHARD = re.compile(r"__(\d+)_(\d+)\.distcp")


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
        report.failed(
            "recipe-convert-family",
            model.family,
            "verl's converter knows no expert model of this family, and would take it for a dense "
            "one",
            "leave the conversion out: the weights load online",
        )
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
            "recipe-convert-experts",
            f"EP {wanted.ep}",
            f"{experts} experts do not split over {wanted.ep}",
            "an EP that divides the number of experts",
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
    report.data["job"] = wanted.command(model)
    report.data["then"] = f"reprise recipe convert --verify {shlex.quote(str(wanted.target))}"


def check_mcore(report: Report, folder: Path) -> None:
    """Is an MCore checkpoint whole: shards, common.pt, .metadata, metadata.json, no empty file."""
    rule = "recipe-convert-complete"
    if not folder.is_dir():
        report.failed(rule, str(folder), "expected a folder, found none", "check the path")
        return
    for name in ("common.pt", ".metadata", "metadata.json"):
        path = folder / name
        if not path.is_file() or path.stat().st_size == 0:
            found = "an empty file" if path.is_file() else "none"
            report.failed(
                rule,
                str(path),
                f"expected {name}, found {found}: the conversion did not end",
                "convert again into a new folder",
            )
    _format(report, folder / "metadata.json")
    shards = {path: _SHARD.fullmatch(path.name) for path in sorted(folder.glob("*.distcp"))}
    if not shards:
        report.failed(rule, str(folder), "no shard (__<rank>_<n>.distcp)", "convert again")
    for path, match in shards.items():
        if match is None or path.stat().st_size == 0:
            report.failed(rule, str(path), "an empty shard or a foreign name", "convert again")
    _listed(report, folder, {path.name for path in shards})
    report.data["shards"] = len(shards)
    report.data["bytes"] = sum(path.stat().st_size for path in shards)
    report.settle(rule)


def _format(report: Report, path: Path) -> None:
    try:
        kind = json.loads(path.read_text(encoding="utf-8")).get("sharded_backend")
    except (OSError, ValueError, AttributeError):
        return  # missing or damaged: the completeness says so, or the next line does
    if kind != "torch_dist":
        report.failed(
            "recipe-convert-format", str(path), f"sharded_backend {kind!r}, expected 'torch_dist'",
            "convert with verl's own script",
        )  # fmt: skip


def _listed(report: Report, folder: Path, present: set[str]) -> None:
    """Shards that .metadata names and the folder lacks; the file is searched, never unpickled."""
    try:
        raw = (folder / ".metadata").read_bytes()
    except OSError:
        return
    named = {match.group().decode() for match in re.finditer(rb"__\d+_\d+\.distcp", raw)}
    for name in sorted(named - present):
        report.failed(
            "recipe-convert-complete", str(folder / name), "named by .metadata, but not there",
            "convert again into a new folder",
        )  # fmt: skip
