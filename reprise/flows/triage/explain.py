"""Triage of a run: its logs collected, the answer written into its folder; support bundles."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from reprise.core.errors import OperatorError
from reprise.core.files import dump_json
from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.flows.triage.clocks import read_clocks
from reprise.runs.state.folder import FINISHED, RunFolder, find_run
from reprise.runs.state.state import AttemptOutcome
from reprise.triage.bundle import pack
from reprise.triage.engine import Examined, examine
from reprise.triage.judge import Question
from reprise.triage.model import Clock, State
from reprise.triage.patterns import load_library
from reprise.triage.report import RULE, describe, fill_report, summary
from reprise.triage.secrets import Masker
from reprise.triage.selftest import self_test

__all__ = [
    "FAILED",
    "SITE_PATTERNS",
    "add_triage",
    "explain_attempt",
    "hosts_folder",
    "pack_support",
    "read_triage",
    "triage_attempt",
    "triage_file",
    "triage_paths",
    "triage_self_test",
]

SITE_PATTERNS = "triage.toml"
"""A site's own patterns, in the project's folder."""

FAILED = frozenset({AttemptOutcome.FAILED, AttemptOutcome.STALLED, AttemptOutcome.LOST})
"""Outcomes of an attempt that ended badly by itself."""

_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD")


def _site_patterns(project: Project, named: Sequence[Path]) -> list[Path]:
    own = project.root / SITE_PATTERNS
    return [*named, *([own] if own.is_file() else [])]


def triage_self_test(project: Project, patterns: Sequence[Path]) -> Report:
    """Every pattern, a site's own ones too, tried on its examples."""
    return self_test(load_library(_site_patterns(project, patterns)))


def triage_paths(
    project: Project,
    paths: Sequence[str],
    patterns: Sequence[Path] = (),
    hosts: Mapping[str, str] | None = None,
    clocks: Mapping[str, Clock] | None = None,
) -> tuple[Report, Examined]:
    """Triage of log files, folders and runs; a run's own state says whether it succeeded.

    Hosts' clocks that were measured with the logs are used, unless `clocks` says otherwise.
    Raises OperatorError for a path that is neither.
    """
    found: list[Path] = []
    outcome = ""
    for text in paths:
        path = Path(text)
        if path.exists() and not (path / "run.json").is_file():
            found.append(path)
            continue
        run = _run(project, text)
        found += _logs_of(run)
        outcome = _outcome(run) if len(paths) == 1 else ""
    question = Question(outcome, read_clocks(found, clocks))
    examined = examine(found, question, hosts, _site_patterns(project, patterns))
    report = Report("triage")
    fill_report(report, examined)
    return report, examined


def _run(project: Project, text: str) -> RunFolder:
    if (Path(text) / "run.json").is_file():
        return RunFolder(Path(text).absolute())
    try:
        return find_run(project.runs, text)
    except OperatorError:
        raise OperatorError(
            "triage-path",
            text,
            "there is no such file or folder, and no run of this name",
            "name a log file, a folder of logs, or a run (reprise runs lists them)",
        ) from None


def _outcome(run: RunFolder) -> str:
    state = run.read()
    if state.status is FINISHED:
        return "succeeded"
    ended = [item.outcome for item in state.attempts or [] if item.outcome is not None]
    return "failed" if ended and ended[-1] in FAILED else ""


def _logs_of(run: RunFolder, attempt: int | None = None) -> list[Path]:
    """The logs of an attempt, by default the last one: the job's and the hosts'."""
    number = attempt or max((item.number for item in run.read().attempts or []), default=0)
    log = run.log_file(number)
    hosts = hosts_folder(run, number)
    found = [path for path in (log, hosts) if path.exists()]
    return found or [run.path / "logs"]


def hosts_folder(run: RunFolder, attempt: int) -> Path:
    """Where the logs of an attempt's hosts are kept, one folder a host."""
    return run.path / "logs" / f"attempt-{attempt}"


def triage_file(run: RunFolder) -> Path:
    """Where a run's triage is kept."""
    return run.path / "triage.json"


def triage_attempt(project: Project, run: RunFolder, number: int, outcome: str = "") -> Examined:
    """Triage an attempt's logs and write triage.json, unless the job ended well.

    A faulty file of site patterns, or a full disk, must not hide the failure itself.
    """
    logs = _logs_of(run, number)
    question = Question(outcome, read_clocks(logs))
    try:
        examined = examine(logs, question, None, _site_patterns(project, ()))
    except OperatorError:
        examined = examine(logs, question)
    if examined.diagnosis.state is not State.NO_FAILURE:
        # A full disk is often the very cause.
        with contextlib.suppress(OSError):
            dump_json(triage_file(run), {"attempt": number, **describe(examined)})
    return examined


def explain_attempt(project: Project, run: RunFolder, number: int, failed: bool) -> str:
    """The cause of an attempt's failure in one line; empty where the logs show none.

    `failed` says that the attempt is known to have failed, whatever its logs show.
    """
    return summary(triage_attempt(project, run, number, "failed" if failed else ""))


def read_triage(run: RunFolder) -> dict[str, Any]:
    """What triage.json of a run holds; empty where there is none or it cannot be read."""
    try:
        value = orjson.loads(triage_file(run).read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def add_triage(report: Report, run: RunFolder, attempt: int) -> None:
    """Add to `report` what triage.json says of the root cause of `attempt`, if it names one."""
    try:
        value = orjson.loads(triage_file(run).read_bytes())
        root = value["root"]
        if value["attempt"] != attempt or root is None:
            return
        files = [run.path / "logs" / f"attempt-{attempt}" / root["file"], run.log_file(attempt)]
        file = next((str(path) for path in files if path.is_file()), root["file"])
        host = f" on {root['host']}" if root["host"] else ""
        text = f"root cause: {value['title']}{host}: {root['text']}"
        report.note(RULE, f"{file}:{root['line']}", text, "; ".join(root["advice"]))
    except (OSError, ValueError, KeyError, TypeError):
        return
    report.data["triage"] = value


def pack_support(project: Project, text: str, out: Path | None) -> Report:
    """Write the support bundle of a run. Raises OperatorError for an unknown run."""
    run = _run(project, text)
    report = Report("support-bundle")
    logs = _logs_of(run)
    question = Question(_outcome(run), read_clocks(logs))
    examined = examine(logs, question, None, _site_patterns(project, ()))
    values = [
        value
        for name, value in os.environ.items()
        if any(word in name.upper() for word in _SECRET_WORDS)
    ]
    masker = Masker(values)
    target = out or Path(f"support-{run.name}.tar.gz")
    packed = pack(run.path, target, describe(examined), masker, [project.root / "versions.lock"])
    report.passed("support-bundle")
    for note in packed.left_out:
        report.note("support-left-out", note.partition(": ")[0], note.partition(": ")[2])
    report.data |= {
        "archive": str(target),
        "files": packed.files,
        "bytes": packed.size,
        "masked": masker.count,
        "left_out": list(packed.left_out),
    }
    return report
