"""What `dcgmi diag -j` prints, as DCGM 3 and 4 do.

Forms: nvvs/include/NvvsCommon.h of https://github.com/NVIDIA/DCGM and documents in public issues.
Not run on hardware.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from reprise.machines.accelerator import Facts, Health

__all__ = ["QUESTION", "diagnosis"]

_KEY = "dcgm"
_LEVEL, _SECONDS = 2, 420
QUESTION = f"output {_KEY} {_SECONDS} dcgmi diag -r {_LEVEL} -j\n"
"""Level 2 takes about two minutes: software, PCIe and memory of every GPU."""

_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")  # version 4, versions 2 and 3
# dcgmErrorSeverity_t of DCGM 4: a setting of the host, such as persistence mode.
_CONFIG = 5
_RULE = "gpu-diag"


@dataclass(frozen=True, slots=True)
class _Result:
    """One test on one GPU (empty: on the host): pass, fail, warn or skip; the tool's texts."""

    test: str
    gpu: str
    status: str
    texts: Sequence[str]
    setting: bool

    @property
    def shown(self) -> str:
        where = f" on GPU {self.gpu}" if self.gpu else ""
        return f"{self.test}{where}" + (f": {'; '.join(self.texts)}" if self.texts else "")


def diagnosis(facts: Facts) -> Iterator[Health]:
    """The results of a host, one for each kind; nothing where DCGM is not installed."""
    if not facts.all(f"{_KEY}.ran"):
        return
    found = _read("\n".join(facts.all(_KEY)))
    if isinstance(found, str) or not found:
        why = found or facts.why(_KEY) or "the output names no test"
        yield Health.unknown("gpu-diag.unread", why=why)
        return
    failed = [item.shown for item in found if item.status == "fail" and not item.setting]
    warned = [
        item.shown
        for item in found
        if item.status == "warn" or (item.status == "fail" and item.setting)
    ]
    passed = [item for item in found if item.status == "pass"]
    skipped = [item.shown for item in found if item.status == "skip"]
    other = [f"{item.shown} ({item.status})" for item in found if item.status not in _STATUSES]
    if failed:
        yield Health.error("gpu-diag.failed", results="; ".join(failed))
    if warned:
        yield Health.warn("gpu-diag.warned", results="; ".join(warned))
    if other or (skipped and not passed):
        yield Health.unknown("gpu-diag.not-run", results="; ".join([*skipped, *other]))
    elif skipped:
        yield Health.warn("gpu-diag.skipped", results="; ".join(skipped))
    if facts.why(_KEY) is not None and not failed and not warned:
        yield Health.unknown("gpu-diag.unread", why=facts.why(_KEY))
    elif passed and not failed and not warned and not skipped and not other:
        yield Health.good(_RULE)


_STATUSES = frozenset({"pass", "fail", "warn", "skip"})
_WORDS = {"passed": "pass", "failed": "fail", "warning": "warn", "skipped": "skip"}


def _read(text: str) -> list[_Result] | str:
    """Every result; a text says why there is none."""
    start, end = text.find("{"), text.rfind("}")
    try:
        value = orjson.loads(text[start : end + 1])
    except orjson.JSONDecodeError:
        return (text.strip().splitlines() or [""])[-1]
    root = next((value[key] for key in _ROOTS if isinstance(value.get(key), dict)), None)
    if root is None:
        return f"unknown output of dcgmi: {', '.join(value)}"
    if error := root.get("runtime_error"):
        return str(error)
    return [
        result
        for category in _dicts(root.get("test_categories"))
        for test in _dicts(category.get("tests"))
        for result in _results(test)
    ]


def _results(test: Mapping[str, Any]) -> Iterator[_Result]:
    name = str(test.get("name") or "a test without a name")
    results = list(_dicts(test.get("results")))
    summary = test.get("test_summary")
    if not results and isinstance(summary, dict):
        # A test of the host as a whole.
        results = [summary]
    for item in results:
        status = str(item.get("status") or "no status").strip().lower()
        warnings = item.get("warnings") or []
        warnings = warnings if isinstance(warnings, list) else [warnings]
        severities = [
            entry.get("error_severity") if isinstance(entry, dict) else None for entry in warnings
        ]
        texts = [
            str(entry.get("warning") or entry) if isinstance(entry, dict) else str(entry)
            for entry in warnings
        ]
        gpu = next(
            (str(item[key]) for key in ("entity_id", "gpu_id", "gpu_ids") if key in item), ""
        )
        group = str(item.get("entity_group") or "GPU")
        shown = gpu if group == "GPU" or not gpu else f"{gpu} ({group})"
        setting = bool(severities) and all(level == _CONFIG for level in severities)
        yield _Result(name, shown, _WORDS.get(status, status), texts, setting)


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    yield from (item for item in value or () if isinstance(item, dict))
