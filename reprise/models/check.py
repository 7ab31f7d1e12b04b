"""`reprise model check`: check a folder of weights, here and on other hosts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from reprise.core.findings import Report, Severity
from reprise.core.rules import render
from reprise.models import shards
from reprise.models.classes import compare_all
from reprise.models.complete import judge_class, judge_dtypes, judge_tokenizer
from reprise.models.config import config_faults

__all__ = [
    "HERE",
    "Inspection",
    "Unseen",
    "inspect_here",
    "inspection_of",
    "inspection_script",
    "judge",
]

HERE = ""
_END = "REPRISE_END_OF_SCRIPT"


@dataclass(frozen=True, slots=True)
class Unseen:
    """A folder that could not be inspected: the reason and the fix."""

    message: str
    fix: str


# The inspection of a folder (see shards.inspect_folder), or the reason why it failed.
Inspection = Mapping[str, Any] | Unseen


def inspect_here(folder: Path) -> Inspection:
    """The inspection of a local folder."""
    if not folder.is_dir():
        return Unseen(*render("model-folder.not-found", {}))
    return shards.inspect_folder(folder)


def inspection_script(folder: Path) -> str:
    """A POSIX shell script that prints the inspection of a folder, for a host.

    The host needs python3 (3.9 or later) and nothing else.
    """
    source = Path(shards.__file__).read_text(encoding="utf-8")
    return f"python3 - {shlex.quote(str(folder))} <<'{_END}'\n{source}\n{_END}\n"


def inspection_of(output: str, said: str, fix: str) -> Inspection:
    """The inspection that the script printed on a host; otherwise its last line in `said`."""
    try:
        value = orjson.loads(output)
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict):
        return value
    last = (said.strip().splitlines() or ["the script printed nothing"])[-1]
    return Unseen(last[:200], fix)


def judge(
    report: Report,
    found: Mapping[str, Inspection],
    folder: Path,
    config_sha256: str | None = None,
    index_sha256: str | None = None,
    python: Path | None = None,
) -> None:
    """Add what the inspections found; `found` has one entry a host (HERE for this machine).

    Config and index are compared with the locked digests, if given. Hosts must agree. `python` has
    transformers, and with it the class of config.json (see classes.compare_all).
    """
    _judge_classes(report, found, folder, python)
    for host, inspection in found.items():
        place = f"{host}:{folder}" if host else str(folder)
        if isinstance(inspection, Unseen):
            if host:
                report.unknown("model-host", place, inspection.message, inspection.fix)
            else:
                report.failed("model-folder", place, inspection.message, inspection.fix)
            continue
        for fault in inspection["faults"]:
            where = f"{host}:{fault['where']}" if host else fault["where"]
            report.failed(fault["rule"], where, fault["message"], fault["fix"])
        _judge_config(report, place, inspection)
        judge_tokenizer(report, place, inspection["tokenizer"], inspection["tensors"] or {})
        _judge_digests(report, place, inspection["facts"], config_sha256, index_sha256)
        for rule in inspection["rules"]:
            report.settle(rule)
    _judge_agreement(report, found, folder)
    report.data["hosts"] = [
        {"host": host or "here"}
        | ({"unknown": item.message} if isinstance(item, Unseen) else dict(item["facts"]))
        for host, item in found.items()
    ]


def _judge_classes(
    report: Report, found: Mapping[str, Inspection], folder: Path, python: Path | None
) -> None:
    """Compare names and shapes with the class of the config, once for all hosts that agree."""
    groups: dict[bytes, list[str]] = {}
    for host, item in found.items():
        if not isinstance(item, Unseen) and item["config"] is not None and item["tensors"]:
            key = orjson.dumps([item["config"], item["tensors"]], option=orjson.OPT_SORT_KEYS)
            groups.setdefault(key, []).append(host)
    models: list[tuple[Any, Any]] = [tuple(orjson.loads(key)) for key in groups]
    results = compare_all(models, python) if models else []
    for (config, tensors), hosts, compared in zip(models, groups.values(), results, strict=True):
        place = f"{', '.join(hosts[:4])}:{folder}" if any(hosts) else str(folder)
        judge_class(report, place, config, compared)
        judge_dtypes(report, place, config, tensors)
        report.data["class"] = compared.by


def _judge_config(report: Report, place: str, inspection: Mapping[str, Any]) -> None:
    config = inspection["config"]
    if config is None:
        return
    where = f"{place}/config.json"
    tensors = inspection["tensors"] or {name: ["", []] for name in inspection["names"]}
    for fault in config_faults(config, tensors):
        if fault.severity is Severity.ERROR:
            report.failed("model-config", where, fault.message, fault.fix)
        else:
            report.warn("model-config", where, fault.message, fault.fix)


def _judge_digests(
    report: Report,
    place: str,
    facts: Mapping[str, Any],
    config_sha256: str | None,
    index_sha256: str | None,
) -> None:
    for name, locked, key in (
        ("config.json", config_sha256, "config_sha256"),
        (shards.INDEX, index_sha256, "index_sha256"),
    ):
        if locked is None or facts[key] is None:
            continue
        if facts[key] != locked:
            report.failed("model-lock.differs", f"{place}/{name}", locked=locked, found=facts[key])
        report.settle("model-lock")


def _judge_agreement(report: Report, found: Mapping[str, Inspection], folder: Path) -> None:
    """All hosts must have the same config and index: different copies train different models."""
    seen: dict[tuple[Any, Any], list[str]] = {}
    for host, item in found.items():
        if not isinstance(item, Unseen):
            key = (item["facts"]["config_sha256"], item["facts"]["index_sha256"])
            seen.setdefault(key, []).append(host or "here")
    if len(seen) > 1:
        groups = " | ".join(", ".join(hosts[:4]) for hosts in seen.values())
        report.failed("model-agreement.differs", str(folder), groups=groups)
    elif sum(map(len, seen.values())) > 1:
        report.passed("model-agreement")
