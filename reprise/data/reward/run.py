"""`reprise data check --reward`: the recipe's own scorer on right, wrong and empty answers."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reprise.core.errors import CannotTell, OperatorError
from reprise.data.check.check import Checked
from reprise.data.check.repeats import rows_at
from reprise.data.check.settings import Settings
from reprise.data.reward import worker as reward_worker
from reprise.data.reward.answers import answers_to

__all__ = ["Probe", "Scored", "Scorer", "groups", "probes", "run_scorer"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One row to score: its number in `file`, and the fields that a scorer gets."""

    file: str
    row: int
    data_source: str
    ground_truth: Any
    extra_info: Any

    def answers(self) -> dict[str, str]:
        """Right and wrong answers in every format, and the empty answer."""
        return answers_to(self.ground_truth)


@dataclass(slots=True)
class Scored:
    """What the scorer said of one probe (see reward_worker)."""

    probe: Probe
    scores: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    ms: dict[str, float] = field(default_factory=dict)

    def formats(self) -> list[str]:
        """The formats in which the right answer has a score that is a finite number."""
        labels = [name for name in self.scores if name.startswith("right ")]
        return [name[6:] for name in labels if math.isfinite(self.scores[name])]

    def best(self) -> str | None:
        """The format in which the right answer scores highest; None when none has a score."""
        return max(self.formats(), key=lambda name: self.scores[f"right {name}"], default=None)

    def missing(self) -> str | None:
        """What a scorer that could not be run needs: the error of its import, else None."""
        marks = ("ModuleNotFoundError: ", "ImportError: ")
        told = [text for text in self.errors.values() if text.startswith(marks)]
        return told[0].partition(": ")[2] if told else None


def probes(items: Sequence[Checked], settings: Settings, limit: int) -> list[Probe]:
    """At most `limit` distinct prompts and answers, evenly spread over each file."""
    found = []
    for item in items:
        _, first = np.unique(item.scan.pairs, return_index=True)
        places = np.sort(first)
        share = max(1, limit // max(1, len(items)))
        chosen = np.linspace(0, len(places) - 1, min(share, len(places))).astype(np.int64)
        wanted = places[np.unique(chosen)]
        rows = rows_at(item.scan.source, wanted, settings.prompt_key)
        for place, row in zip(wanted, rows, strict=True):
            reward = row.get("reward_model")
            found.append(
                Probe(
                    str(item.scan.source.path),
                    item.scan.number(int(place)),
                    str(row.get("data_source")),
                    reward.get("ground_truth") if isinstance(reward, dict) else None,
                    row.get("extra_info"),
                )
            )
    return found


@dataclass(frozen=True, slots=True)
class Scorer:
    """How to run the scorer: an interpreter that has verl, verl's source, the custom function.

    `seconds` is how long one row may take before the scorer counts as hanging.
    """

    python: Path
    verl: Path | None
    path: Path | None = None
    name: str = "compute_score"
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 60.0


def run_scorer(
    scorer: Scorer, wanted: Sequence[Probe], progress: Callable[[int], None] | None = None
) -> tuple[str, list[Scored]]:
    """Score all probes in one child process; where the function stands, and what it said.

    Raises CannotTell when the interpreter or verl is missing, OperatorError when the custom
    function cannot be loaded, the scorer ends the process, or it hangs.
    """
    if not scorer.python.is_file():
        raise CannotTell("data-reward.environment-verl-installed", str(scorer.python))
    command = [str(scorer.python), str(Path(reward_worker.__file__))]
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env=_environment(scorer),
        # A session of its own, so that what the scorer starts is ended with it.
        start_new_session=True,
    )
    try:
        return _talk(child, scorer, wanted, progress)
    finally:
        _end(child)


def _end(child: subprocess.Popen[str]) -> None:
    """End the child and its session. Its outputs are their readers' to close: they wait in them as
    long as anybody holds the other end, who may have left the session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()


def _environment(scorer: Scorer) -> dict[str, str]:
    """The child's environment: verl's locked source first on its path, no hub, no tokens."""
    kept = {k: v for k, v in os.environ.items() if "TOKEN" not in k and "API_KEY" not in k}
    if scorer.verl is not None:
        kept["PYTHONPATH"] = str(scorer.verl)
    return kept | {"HF_HUB_OFFLINE": "1"}


def _talk(
    child: subprocess.Popen[str],
    scorer: Scorer,
    wanted: Sequence[Probe],
    progress: Callable[[int], None] | None,
) -> tuple[str, list[Scored]]:
    lines: queue.Queue[str | None] = queue.Queue()
    errors: list[str] = []
    threading.Thread(target=_read, args=(child.stdout, lines.put), daemon=True).start()
    threading.Thread(target=_read, args=(child.stderr, errors.append), daemon=True).start()
    path = str(scorer.path) if scorer.path else None
    _send(child, {"path": path, "name": scorer.name, "kwargs": dict(scorer.kwargs)})
    # Importing verl takes long on a cold disk; a row does not.
    ready = _answer(lines, max(300.0, scorer.seconds), scorer, errors, "while it was loaded")
    if "failed" in ready:
        raise _cannot_load(scorer, ready["failed"])
    found = []
    for place, probe in enumerate(wanted):
        _send(child, {"id": place, "data_source": probe.data_source, "extra_info": probe.extra_info,
                      "ground_truth": probe.ground_truth, "answers": probe.answers()})  # fmt: skip
        where = f"at {probe.file} row {probe.row}"
        told = _answer(lines, scorer.seconds, scorer, errors, where)
        found.append(Scored(probe, told["scores"], told["errors"], told["ms"]))
        if progress is not None:
            progress(1)
    return str(ready["ready"]), found


def _read(stream: Any, put: Callable[[Any], None]) -> None:
    with stream:
        for line in stream:
            put(line)
    put(None)


def _send(child: subprocess.Popen[str], value: Mapping[str, Any]) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(json.dumps(value, default=str) + "\n")
        child.stdin.flush()
    except BrokenPipeError:
        return  # its end is noticed by the missing answer


def _answer(
    lines: queue.Queue[str | None],
    seconds: float,
    scorer: Scorer,
    errors: list[str],
    where: str,
) -> dict[str, Any]:
    try:
        line = lines.get(timeout=seconds)
    except queue.Empty:
        raise OperatorError(
            "data-reward.answer-s-hangs",
            str(scorer.path or "verl's scorer"),
            seconds=seconds,
            place=where,
        ) from None
    if line is None:
        last = [text.strip() for text in errors if text and text.strip()][-1:] or ["no message"]
        raise OperatorError(
            "data-reward.scorer-ended-process",
            str(scorer.path or "verl's scorer"),
            place=where,
            last=last[0][:300],
        )
    value: dict[str, Any] = json.loads(line)
    return value


def _cannot_load(scorer: Scorer, reason: str) -> OperatorError:
    lacking = re.fullmatch(r"ModuleNotFoundError: No module named '([^']+)'", reason)
    if scorer.path is not None and lacking:
        return CannotTell(
            "reward-run.scorer-could-run-2", f"{scorer.path}:{scorer.name}", lacking=lacking[1]
        )
    if scorer.path is None:
        return CannotTell("data-reward.verl-s-scorer", str(scorer.python), reason=reason)
    return OperatorError("data-reward.cannot-loaded", f"{scorer.path}:{scorer.name}", reason=reason)


def groups(scored: Sequence[Scored]) -> Iterator[tuple[str, list[Scored]]]:
    """The probes by data_source, in the order of first appearance."""
    by_source: dict[str, list[Scored]] = {}
    for item in scored:
        by_source.setdefault(item.probe.data_source, []).append(item)
    yield from by_source.items()
