"""Compare the tensors of a model with what the class of its config.json would have."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from reprise.models import class_worker
from reprise.models.config import impossible_count
from reprise.models.tables import expected_tensors

__all__ = ["Compared", "compare_all"]

_SECONDS = 900.0
"""Limit of one comparison process: the import of torch from a cold disk, then seconds a model."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The difference between a model's tensors and its class.

    `by` is what knew the class; None when nothing did, for the reason `unknown`. `failed` is the
    error of a class that cannot be built or loaded from these tensors. `mismatched` are (name,
    found shape, expected shape).
    """

    by: str | None
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[tuple[str, list[int], list[int]], ...] = ()
    failed: str = ""
    unknown: str = ""


def compare_all(
    models: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], python: Path | None
) -> list[Compared]:
    """The difference for each (config, {name: [dtype, shape]}), in order.

    `python` is an interpreter with transformers, which decides where it knows the class; otherwise
    the tables of a few architectures do.
    """
    possible = [model for model in models if impossible_count(model[0]) is None]
    ready = bool(possible) and python is not None and python.is_file()
    answers = _ask(possible, python) if ready else None
    found = []
    place = -1
    for config, tensors in models:
        if (stated := impossible_count(config)) is not None:
            found.append(Compared(None, unknown=f"config.json says {stated}"))
            continue
        place += 1
        if isinstance(answers, list):
            compared = _read(answers[place], str(answers[-1]))
            if compared.by is not None:
                found.append(compared)
                continue
            reason = compared.unknown
        else:
            reason = answers or "no environment with transformers is installed"
        found.append(_by_table(config, tensors, reason))
    return found


def _ask(models: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], python: Path | None) -> Any:
    """The worker's answers with its version last; otherwise the reason why there are none."""
    lines = [
        orjson.dumps({"id": place, "config": config, "tensors": tensors}).decode()
        for place, (config, tensors) in enumerate(models)
    ]
    kept = {k: v for k, v in os.environ.items() if "TOKEN" not in k and "API_KEY" not in k}
    try:
        child = subprocess.run(
            [str(python), str(Path(class_worker.__file__))],
            input="\n".join(lines) + "\n",
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=kept,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"transformers did not answer within {_SECONDS:.0f} s"
    except OSError as error:
        return f"{python} cannot be started: {error.strerror}"
    said = [line for line in child.stdout.splitlines() if line.startswith("{")]
    first = orjson.loads(said[0]) if said else {}
    if "ready" not in first or len(said) != 1 + len(models):
        last = first.get("failed") or (child.stderr.strip().splitlines() or ["no output"])[-1]
        return f"transformers did not answer: {last[:200]}"
    return [*map(orjson.loads, said[1:]), f"transformers {first['ready']}"]


def _read(answer: Mapping[str, Any], by: str) -> Compared:
    if "unknown" in answer:
        return Compared(None, unknown=answer["unknown"])
    if "failed" in answer:
        return Compared(by, failed=answer["failed"])
    return Compared(
        by,
        tuple(answer["missing"]),
        tuple(answer["unexpected"]),
        tuple((name, found, wanted) for name, found, wanted in answer["mismatched"]),
    )


def _by_table(config: Mapping[str, Any], tensors: Mapping[str, Any], reason: str) -> Compared:
    table = expected_tensors(config)
    if table is None:
        return Compared(None, unknown=reason)
    wrong = [
        (name, list(tensors[name][1]), list(table.wanted[name]))
        for name in table.wanted
        if name in tensors and list(tensors[name][1]) != list(table.wanted[name])
    ]
    missing = sorted(name for name in table.wanted if name not in tensors)
    extra = sorted(name for name in tensors if name not in table.wanted and not table.ignores(name))
    return Compared(
        "the table of its architecture",
        tuple(name for name in missing if name not in table.optional),
        tuple(extra),
        tuple(wrong),
    )
