"""Judge any run against any reference: what is known of both, and how they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from reprise.core.errors import OperatorError
from reprise.core.project import Project
from reprise.curves.checks.alias import ValidationSet
from reprise.curves.checks.comparable import Origin
from reprise.curves.judge import Judgement, JudgeOptions, judge_run
from reprise.curves.past import Past
from reprise.curves.reference import Reference
from reprise.curves.report import write_report
from reprise.flows.key import KEYS
from reprise.flows.triage.explain import read_triage
from reprise.metrics import MetricTable, read_run
from reprise.runs.state.folder import RunFolder, find_run
from reprise.runs.state.state import RunState, read_state

__all__ = [
    "AnyRun",
    "config_of",
    "judge_any",
    "named_run",
    "open_run",
    "origin_of",
    "past_of",
    "past_of_folder",
    "write_any",
]


@dataclass(frozen=True, slots=True)
class AnyRun:
    """A run of any origin: its metrics, and its state and configuration where they are recorded."""

    path: Path
    table: MetricTable
    state: RunState | None
    config: dict[str, Any]


def named_run(project: Project, named: Path) -> Path:
    """A path as it stands, else the run with that id. Raises OperatorError when there is none."""
    if named.exists() or len(named.parts) != 1:
        return named
    return find_run(project.runs, named.name).path


def open_run(path: Path, series: str | None = None) -> AnyRun:
    """Read a run folder, a metrics file or a folder of files.

    `series` names one of several runs in one export. Raises OperatorError for anything that
    cannot be read, also for a damaged run.json.
    """
    return AnyRun(path, read_run(path, series), _state(path), config_of(path))


def config_of(path: Path) -> dict[str, Any]:
    """The resolved configuration of a run folder; empty where none is recorded."""
    try:
        text = (path / "config.yaml").read_text(encoding="utf-8")
        loaded = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    # A tracker's config.yaml wraps each value ({"value": ...}); it is not the resolved one.
    return loaded if isinstance(loaded, dict) and "actor_rollout_ref" in loaded else {}


def _state(path: Path) -> RunState | None:
    file = path / "run.json"
    if not file.is_file():
        return None
    try:
        return read_state(file)
    except OperatorError as error:
        fix = f"{error.fix}; or name the metrics file instead of the folder"
        raise OperatorError(error.rule, error.where, error.message, fix) from None


def origin_of(run: AnyRun) -> Origin:
    """What is known of a run's inputs."""
    facts: dict[str, Any] = {}
    if run.state is not None:
        facts = {name: getattr(run.state, name) for name in KEYS if name != "steps"}
    return Origin({k: v for k, v in facts.items() if v is not None}, run.config)


def judge_any(
    run: AnyRun,
    reference: Reference,
    steps: int | None = None,
    margin: float | None = None,
    accepted: Sequence[str] = (),
) -> Judgement:
    """Judge `run`; `steps` it was to train: given, else its own record's, else the reference's."""
    state = run.state
    expected = steps or (state.steps if state else None) or reference.steps
    used = None
    if state is not None and state.validation is not None:
        found = state.validation
        used = ValidationSet(found.rows, found.prompts, found.samples)
    options = JudgeOptions(
        used, state.seed if state else None, margin, origin_of(run), tuple(accepted)
    )
    return judge_run(run.table, reference, expected, options=options)


def write_any(folder: Path, run: AnyRun, judgement: Judgement, reference: Reference) -> None:
    """Write verdict.json, curves.png and report.html into `folder`, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    shown: dict[str, Any] = {}
    if run.state is not None:
        apart = {"watcher", "status", "schema_version", "token_file", "ray"}
        shown = run.state.model_dump(mode="json", exclude=apart, exclude_none=True)
    write_report(folder, judgement, run.table, reference, shown, past_of(run))


def past_of(run: AnyRun) -> Past:
    """Events and explained failure of a run folder; both empty for other files."""
    return Past() if run.state is None else past_of_folder(RunFolder(run.path))


def past_of_folder(folder: RunFolder) -> Past:
    """Events and explained failure of a run."""
    events = [event for event in folder.events() if isinstance(event, dict)]
    return Past(events, read_triage(folder))
