"""The logs of all hosts of an attempt, collected into the run's folder before they are judged."""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from reprise.cluster.answer import Answer
from reprise.cluster.record import Record, find_record
from reprise.cluster.site import SshSettings
from reprise.cluster.ssh import Ssh, assignments, run_here
from reprise.core.errors import OperatorError
from reprise.core.project import Project
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import PlaceKind, RunState

__all__ = ["collect_logs"]

_SECONDS = 90.0
_SCRIPT = "node_logs.sh"
_MOST_FILE = 1 << 20


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
    target = run.path / "logs" / f"attempt-{number}"
    try:
        answers = _ask(project, state, stacks, ssh)
    except (OperatorError, OSError) as error:
        say(f"logs of the hosts were not collected: {error}")
        return
    for answer in answers:
        fault = _unpack(answer, target / answer.host)
        if fault:
            say(f"logs of {answer.host} were not collected: {fault}")


def _ask(project: Project, state: RunState, stacks: bool, ssh: SshSettings | None) -> list[Answer]:
    """What each host answers."""
    script = (project.root / "scripts" / _SCRIPT).read_text(encoding="utf-8")
    begun = state.attempts[-1].started if state.attempts else None
    minutes = str(int((time.time() - begun) / 60) + 10) if begun else "1440"
    values = {"N_MINUTES": minutes, "N_STACKS": "1" if stacks else ""}
    if state.place is PlaceKind.HOSTFILE and state.hostfile and ssh is not None:
        record = find_record(Path(state.hostfile))
        if record is None:
            return []
        values |= _where(record)
        with Ssh(ssh) as connection:
            jobs = [(node.host, assignments(values) + script) for node in record.active]
            return connection.run(jobs, _SECONDS)
    if state.ray is not None and state.ray.temp_dir:
        logs = Path(state.ray.temp_dir) / "session_latest" / "logs"
        if logs.is_dir():
            values |= {"N_LOGS": str(logs), "N_ENGINE": "", "N_NAME": ""}
            return [run_here("localhost", assignments(values) + script, _SECONDS)]
    return []


def _where(record: Record) -> dict[str, str]:
    """Where Ray's logs are on the nodes of a cluster that was started from a hostfile."""
    engine = record.engine if record.container else ""
    return {
        "N_LOGS": f"{record.root}/r/session_latest/logs",
        "N_ENGINE": engine,
        "N_NAME": record.container,
    }


def _unpack(answer: Answer, target: Path) -> str:
    """Write the files of an answer below `target`; why not, or an empty text."""
    if not answer.ok:
        return answer.said or answer.outcome.value
    try:
        packed = base64.b64decode("".join(answer.output.split()))
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
        # An answer above the limit is cut; what arrived whole is kept.
        with contextlib.suppress(OSError):
            return "" if any(target.iterdir()) else str(error)
        return str(error)
    return ""
