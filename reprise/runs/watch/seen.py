"""The state of a run at one moment, as numbers and as text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from reprise.core.findings import Finding

__all__ = ["NUMBERS", "Seen", "duration", "step_line", "table_rows"]

NUMBERS = {
    "reward": "critic/rewards/mean",
    "probs diff": "training/rollout_probs_diff_mean",
    "KL": "rollout_corr/kl",
    "entropy": "actor/entropy",
    "response length": "response_length/mean",
    "clip ratio": "response_length/clip_ratio",
    "throughput": "perf/throughput",
}
"""What is shown of each step, and its metric of verl. Throughput: tokens per second
per GPU; response length: tokens; KL: of the rollout's policy and the trainer's (nats a token)."""


@dataclass(slots=True)
class Seen:
    """One look at a run. Times are seconds; `None`: not known, or not there yet.

    `state` is run.json's, `job` Ray's own word on the attempt's job. `standing` are the alarms
    that hold, `fresh` those not shown before.
    """

    run: str
    model: str
    state: str
    job: str | None = None
    attempt: int = 0
    resumed_from: int | None = None
    step: int = 0
    total: int = 0
    step_seconds: float | None = None
    since_step: float | None = None
    values: dict[str, float] = field(default_factory=dict)
    validation: tuple[str, float, int] | None = None
    checkpoint: tuple[int, float] | None = None
    nodes: tuple[int, int, float] | None = None
    standing: list[Finding] = field(default_factory=list)
    fresh: list[Finding] = field(default_factory=list)

    @property
    def left(self) -> float | None:
        """Seconds of training that are left at the pace of the last steps."""
        if self.step_seconds is None or not self.total:
            return None
        return self.step_seconds * max(self.total - self.step, 0)

    def to_json(self) -> dict[str, Any]:
        """The look as `--json` prints it; the findings are in the report."""
        found = asdict(self)
        del found["standing"], found["fresh"]
        if self.validation is not None:
            name, value, step = self.validation
            found["validation"] = {"metric": name, "value": value, "step": step}
        if self.checkpoint is not None:
            found["checkpoint"] = {"step": self.checkpoint[0], "age": self.checkpoint[1]}
        if self.nodes is not None:
            alive, known, gpus = self.nodes
            found["nodes"] = {"alive": alive, "known": known, "gpus": gpus}
        return found | {"left": self.left}


def duration(seconds: float) -> str:
    """Seconds in words of one or two units: 42 s, 3.5 min, 2 h 5 min, 1 d 4 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    if seconds < 86400:
        return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
    return f"{seconds // 86400:.0f} d {seconds % 86400 // 3600:.0f} h"


def table_rows(seen: Seen) -> Iterator[tuple[str, str]]:
    """Label and text of each row of the view; what is not known is left out."""
    attempt = f", attempt {seen.attempt}" if seen.attempt else ""
    resumed = f" from step {seen.resumed_from}" if seen.resumed_from is not None else ""
    job = f", job {seen.job}" if seen.job else ""
    yield "run", f"{seen.run} ({seen.model}): {seen.state}{attempt}{resumed}{job}"
    words = [f"{seen.step} of {seen.total or '?'}"]
    if seen.step_seconds is not None:
        words.append(f"{seen.step_seconds:.1f} s/step")
    if seen.left:
        words.append(f"{duration(seen.left)} left")
    if seen.since_step is not None:
        since = duration(seen.since_step)
        first = seen.step <= (seen.resumed_from or 0)
        words.append(f"the attempt began {since} ago" if first else f"last step {since} ago")
    yield "step", ", ".join(words)
    for label in NUMBERS:
        if label in seen.values:
            unit = {"response length": " tokens", "throughput": " tokens/s per GPU"}.get(label, "")
            yield label, f"{seen.values[label]:.4g}{unit}"
    if seen.validation is not None:
        name, value, step = seen.validation
        yield "validation", f"{value:.4g} at step {step} ({name})"
    if seen.checkpoint is not None:
        step, age = seen.checkpoint
        yield "checkpoint", f"step {step}, {duration(age)} ago"
    if seen.nodes is not None:
        alive, known, gpus = seen.nodes
        yield "nodes", f"{alive} of {known} alive, {gpus:g} GPUs"


def step_line(seen: Seen) -> str:
    """One step in one line, for a log: what the table says, shorter."""
    parts = [f"step {seen.step}/{seen.total or '?'}"]
    names = {"response length": "length", "clip ratio": "clipped", "throughput": "tokens/s"}
    parts += [
        f"{names.get(label, label)} {seen.values[label]:.3g}"
        for label in NUMBERS
        if label in seen.values
    ]
    if seen.validation is not None and seen.validation[2] == seen.step:
        parts.append(f"validation {seen.validation[1]:.3g}")
    if seen.step_seconds is not None and seen.left is not None:
        parts.append(f"{seen.step_seconds:.1f} s/step, {duration(seen.left)} left")
    return ", ".join(parts)


def age(then: float, now: float | None = None) -> float:
    """Seconds since `then`; never negative, as clocks of two machines may differ."""
    return max((time.time() if now is None else now) - then, 0.0)
