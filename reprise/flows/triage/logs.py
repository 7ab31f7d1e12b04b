"""The logs of all hosts of an attempt, collected into the run's folder before they are judged."""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reprise.cluster.answer import Answer, AnswerKind
from reprise.cluster.record import Record, find_record
from reprise.cluster.site import SshSettings
from reprise.cluster.ssh import Ssh, assignments, run_here
from reprise.core.errors import OperatorError
from reprise.core.project import Project
from reprise.flows.triage.clocks import CLOCK_SCRIPT, measure, write_clocks
from reprise.flows.triage.explain import hosts_folder
from reprise.runs.ray.local_ray import session_logs
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import PlaceKind, RunState
from reprise.triage.timeline import CLOCK_SECONDS

__all__ = ["collect_logs", "unpack"]

_SECONDS = 90.0
_CLOCK_SECONDS = 10.0
_SCRIPT = "node_logs.sh"
_MOST_FILE = 1 << 20
_HERE = "localhost"


def collect_logs(
    project: Project,
    run: RunFolder,
    number: int,
    stacks: bool,
    ssh: SshSettings | None,
    say: Callable[[str], None],
) -> None:
    """Copy the ends of Ray's logs of every host into the run's folder, one folder a host.

    By SSH from the hosts of a hostfile, from this machine for a private Ray; an existing cluster
    of others has only the job's log, which the Jobs API gave. `stacks` also asks for the stacks of
    hung workers, where py-spy is installed. What cannot be collected is said, never raised: the
    job's own log is judged all the same.
    """
    state = run.read()
    target = hosts_folder(run, number)
    try:
        asked = _ask(project, state, stacks, ssh)
    except (OperatorError, OSError) as error:
        say(f"logs of the hosts were not collected: {error}")
        return
    if state.place is PlaceKind.HOSTFILE and not asked.answers:
        cluster = state.hostfile or "the run"
        say(f"logs of the hosts were not collected: no record of the cluster of {cluster} is here")
    for answer in asked.answers:
        fault = unpack(answer, target / answer.host)
        if fault:
            say(fault)
        for missing in _missing(answer):
            say(f"not collected on {answer.host}: {missing}")
    _keep_clocks(asked, target, say)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The hosts' answers; `addresses` by host, the head's first; `clocks` were asked for alone."""

    answers: Sequence[Answer]
    addresses: Mapping[str, str]
    clocks: Sequence[Answer] = ()


def _keep_clocks(asked: _Asked, target: Path, say: Callable[[str], None]) -> None:
    """Keep the clocks of the hosts whose logs are there, and say whose is unknown."""
    clocks = {}
    for answer in asked.answers:
        if not (target / answer.host).is_dir():
            continue
        clock = measure(answer, *(one for one in asked.clocks if one.host == answer.host))
        if clock is None:
            say(
                f"the clock of {answer.host} was not measured: the order of its lines and those of "
                f"other hosts is uncertain by {CLOCK_SECONDS:.0f} s"
            )
        else:
            clocks[answer.host, asked.addresses[answer.host]] = clock
    if clocks:
        try:
            write_clocks(target, next(iter(asked.addresses)), clocks)
        except OSError as error:
            say(f"the clocks of the hosts were not kept: {error}")


def _ask(project: Project, state: RunState, stacks: bool, ssh: SshSettings | None) -> _Asked:
    """What each host answers."""
    script = (project.root / "scripts" / _SCRIPT).read_text(encoding="utf-8")
    begun = state.attempts[-1].started if state.attempts else None
    minutes = str(int((time.time() - begun) / 60) + 10) if begun else "1440"
    values = {"N_MINUTES": minutes, "N_STACKS": "1" if stacks else ""}
    if state.place is PlaceKind.HOSTFILE and state.hostfile and ssh is not None:
        record = find_record(Path(state.hostfile))
        if record is None:
            return _Asked([], {})
        values |= _where(record)
        with Ssh(ssh) as connection:
            jobs = [(node.host, assignments(values) + script) for node in record.active]
            answers = connection.run(jobs, _SECONDS)
            there = {answer.host for answer in answers if answer.reached}
            again = [(host, CLOCK_SCRIPT) for host, _ in jobs if host.name in there]
            clocks = connection.run(again, _CLOCK_SECONDS)
        return _Asked(answers, {node.name: node.ip for node in record.active}, clocks)
    if state.ray is not None and state.ray.temp_dir:
        logs = session_logs(Path(state.ray.temp_dir))
        values |= {"N_LOGS": str(logs), "N_PATH": str(project.rehearsal_python.parent)}
        here = run_here(_HERE, assignments(values) + script, _SECONDS)
        return _Asked([here], {_HERE: ""})
    return _Asked([], {})


def _where(record: Record) -> dict[str, str]:
    """Where Ray's logs are on the nodes of a cluster that was started from a hostfile."""
    engine = record.engine if record.container else ""
    return {
        "N_LOGS": f"{record.root}/r/session_latest/logs",
        "N_ENGINE": engine,
        "N_NAME": record.container,
        "N_PATH": str(Path(record.python).parent),
    }


def _missing(answer: Answer) -> list[str]:
    """What the script itself says that it could not collect."""
    lines = answer.output.split("\n")
    return [line.removeprefix("missing ") for line in lines if line.startswith("missing ")]


def unpack(answer: Answer, target: Path) -> str:
    """Write the files of an answer below `target`; what is missing and why, or an empty text."""
    missing = f"logs of {answer.host} were not collected: "
    # An answer above the limit has no end; what arrived of it is kept.
    cut = answer.outcome is AnswerKind.CUT and answer.output
    if not answer.ok and not cut:
        return missing + (answer.said or answer.outcome.value)
    # Base64 has no spaces, the script's own lines have.
    text = "".join(line for line in answer.output.split("\n") if " " not in line)
    try:
        packed = base64.b64decode(text[: len(text) // 4 * 4] if cut else text)
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
            target.mkdir(parents=True, exist_ok=True)
            for member in archive:
                # Only plain files, by their last name: nothing leaves the folder.
                name = Path(member.name).name
                if member.isfile() and name and member.size <= _MOST_FILE:
                    file = archive.extractfile(member)
                    if file is not None:
                        (target / name).write_bytes(file.read())
    except (binascii.Error, tarfile.TarError, EOFError, OSError) as error:
        with contextlib.suppress(OSError):
            if any(target.iterdir()):
                return f"only a part of the logs of {answer.host} arrived ({error})"
        return f"{missing}{error}"
    return ""
