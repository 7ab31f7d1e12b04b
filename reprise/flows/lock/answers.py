"""Combine the `lock verify --json` answers of many hosts into one report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from reprise.core.errors import OperatorError
from reprise.core.findings import Check, Finding, Report, Severity, State

__all__ = ["combine"]

_ROW = ("entry", "state", "expected", "found")


def combine(folder: Path) -> Report:
    """Put together the answers in `folder`: one file a host, named after it (`node-3.json`).

    Each rule becomes `host: rule`; rows get a `host`. An answer that cannot be read leaves its
    host unknown. `data`: `rows`, and `differing`, the entries that are not the same everywhere.
    Raises OperatorError when the folder has no answer.
    """
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    if not files:
        raise OperatorError("answers.none", str(folder))
    report = Report("lock verify", data={"rows": []})
    for file in files:
        host = file.stem
        try:
            answer = orjson.loads(file.read_bytes())
            _take(report, host, answer)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            fix = f"repeat `reprise lock verify --json` on {host}"
            report.unknown(host, host, f"{file} is not an answer of `lock verify --json`", fix)
    found: dict[str, set[str]] = {}
    for row in report.data["rows"]:
        found.setdefault(row["entry"], set()).add(f"{row['state']} {row['found']}")
    report.data["differing"] = sorted(entry for entry, seen in found.items() if len(seen) > 1)
    return report


def _take(report: Report, host: str, answer: dict[str, Any]) -> None:
    if answer["command"] != "lock verify":
        raise ValueError(answer["command"])
    rows = [{"host": host, **{key: str(row[key]) for key in _ROW}} for row in answer["rows"]]
    checks = [Check(f"{host}: {item['rule']}", State(item["state"])) for item in answer["checks"]]
    findings = [
        Finding(
            item["rule"],
            Severity(item["severity"]),
            f"{host}: {item['where']}",
            item["message"],
            item["fix"],
        )
        for item in answer["findings"]
    ]
    # Read whole before anything is taken over: half an answer must not count.
    report.checks += checks
    report.findings += findings
    report.data["rows"] += rows
