"""`reprise model check`: a weights folder judged, here and on other hosts."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from reprise.data import shards
from reprise.data.model_config import config_faults
from reprise.errors import OperatorError
from reprise.findings import Report, Severity

__all__ = ["HERE", "Inspection", "inspect_here", "inspect_hosts", "judge"]

HERE = ""
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:\[\]-]*")
_SECONDS = 900

# What was found in a folder (see shards.inspect_folder), or the reason why nothing was.
Inspection = Mapping[str, Any] | str


def inspect_here(folder: Path) -> Inspection:
    """The inspection of a local folder."""
    if not folder.is_dir():
        return "no such folder"
    return shards.inspect_folder(folder)


def inspect_hosts(
    hosts: Sequence[str], folder: Path, ssh_config: Path | None = None
) -> dict[str, Inspection]:
    """Inspect the same folder on every host over SSH, all at once.

    Each host needs python3 (3.9 or later) and nothing else. Raises OperatorError for a name that
    is no host's.
    """
    wrong = [host for host in hosts if not _HOST.fullmatch(host)]
    if wrong:
        raise OperatorError("model-host", wrong[0], "is no host name", "name hosts as ssh does")
    with ThreadPoolExecutor(32) as pool:
        found = pool.map(lambda host: _inspect_host(host, folder, ssh_config), hosts)
        return dict(zip(hosts, found, strict=True))


def _inspect_host(host: str, folder: Path, ssh_config: Path | None) -> Inspection:
    options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
    if ssh_config is not None:
        options += ["-F", str(ssh_config)]
    remote = f"python3 - {shlex.quote(str(folder))}"
    try:
        answer = subprocess.run(
            ["ssh", *options, "--", host, remote],
            input=Path(shards.__file__).read_text(encoding="utf-8"),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        value = json.loads(answer.stdout) if answer.returncode == 0 else None
    except subprocess.TimeoutExpired:
        return f"no answer in {_SECONDS} s"
    except (OSError, ValueError) as error:
        return str(error)
    if not isinstance(value, dict):
        told = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
        return told[-1][:200]
    return value


def judge(
    report: Report,
    found: Mapping[str, Inspection],
    folder: Path,
    config_sha256: str | None = None,
    index_sha256: str | None = None,
) -> None:
    """Add what the inspections found; `found` has one entry a host (HERE for this machine).

    With locked digests, config and index are compared with them. Hosts must agree.
    """
    for host, inspection in found.items():
        place = f"{host}:{folder}" if host else str(folder)
        if isinstance(inspection, str):
            fix = f"ssh {host} ls {shlex.quote(str(folder))}" if host else "give a model's folder"
            if host:
                report.unknown("model-host", place, inspection, fix)
            else:
                report.failed("model-folder", place, inspection, fix)
            continue
        for fault in inspection["faults"]:
            where = f"{host}:{fault['where']}" if host else fault["where"]
            report.failed(fault["rule"], where, fault["message"], fault["fix"])
        _judge_config(report, place, inspection)
        _judge_digests(report, place, inspection["facts"], config_sha256, index_sha256)
        for rule in inspection["rules"]:
            report.settle(rule)
    _judge_agreement(report, found, folder)
    report.data["hosts"] = [
        {"host": host or "here"}
        | (dict(item["facts"]) if not isinstance(item, str) else {"unknown": item})
        for host, item in found.items()
    ]


def _judge_config(report: Report, place: str, inspection: Mapping[str, Any]) -> None:
    config = inspection["config"]
    if config is None:
        return
    where = f"{place}/config.json"
    for fault in config_faults(config, inspection["shapes"], inspection["layers"]):
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
            report.failed(
                "model-lock",
                f"{place}/{name}",
                f"expected sha256 {locked}, found {facts[key]}",
                "reprise model fetch NAME into another folder, or lock what you use",
            )
        report.settle("model-lock")


def _judge_agreement(report: Report, found: Mapping[str, Inspection], folder: Path) -> None:
    """All hosts must see the same config and index: different copies train different models."""
    seen: dict[tuple[Any, Any], list[str]] = {}
    for host, item in found.items():
        if not isinstance(item, str):
            key = (item["facts"]["config_sha256"], item["facts"]["index_sha256"])
            seen.setdefault(key, []).append(host or "here")
    if len(seen) > 1:
        groups = " | ".join(", ".join(hosts[:4]) for hosts in seen.values())
        report.failed(
            "model-agreement",
            str(folder),
            f"config or index differ between hosts: {groups}",
            "give all hosts the same copy",
        )
    elif sum(map(len, seen.values())) > 1:
        report.passed("model-agreement")
