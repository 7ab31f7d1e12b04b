"""One attempt of a run: what is submitted, how it ended, the steps that it recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprise.metrics import parse_json_line
from reprise.runs.state.state import AttemptOutcome
from reprise.runs.watch.progress import StepLine

__all__ = ["STALL_SECONDS", "AttemptEnd", "AttemptOutcome", "Job", "read_steps"]

STALL_SECONDS = 180.0
"""A job that shows nothing new for this long is ended as failed."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is submitted: the command line and its runtime environment."""

    entrypoint: str
    runtime_env: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended, and after how many steps."""

    number: int
    outcome: AttemptOutcome
    steps: int
    message: str


def read_steps(metrics: Path) -> list[StepLine]:
    """The steps in a metrics file of verl's `file` logger, as far as it is written.

    A last line that is still being written is left out; NaN and Infinity are accepted.
    """
    try:
        lines = metrics.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [_step(*record) for line in lines if (record := parse_json_line(line)) is not None]


def _step(step: int, values: Mapping[str, float]) -> StepLine:
    return StepLine(
        step=step,
        seconds=values.get("timing_s/step"),
        reward=values.get("critic/rewards/mean"),
        validation=next((values[key] for key in values if key.startswith("val-core/")), None),
    )
