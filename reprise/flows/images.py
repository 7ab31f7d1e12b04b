"""Images on hosts, compared with the lock; and commands of this project run in the cpu image."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from reprise.cluster.answer import Answer
from reprise.cluster.ssh import Ssh, assignments, run_here
from reprise.core.errors import CannotTell
from reprise.core.files import sha256_text
from reprise.core.findings import Report
from reprise.core.progress import task
from reprise.core.project import Project
from reprise.flows.cluster.hosts import Selection
from reprise.images.carry import newest
from reprise.images.engine import ask, find_engine
from reprise.images.files import Kind
from reprise.images.judge import Held, judge_images, parse_held
from reprise.lock.read import read_lock

__all__ = ["run_inside", "verify_images"]

_SECONDS = 120.0
_INSIDE = "/opt/reprise"
# Exit codes of docker run and podman run when the command in the container did not start.
_NOT_STARTED = (125, 126, 127)


def verify_images(
    project: Project, kind: Kind, selection: Selection | None, image: str | None
) -> Report:
    """What the hosts of `selection`, or this machine, hold under `image`, against the lock.

    By default the image is the site file's, and without a hostfile the newest that was built here.
    A host that does not answer is unknown. `data`: `image`, `hosts`. Raises OperatorError.
    """
    lock = read_lock(project.lock)
    container = selection.site.container if selection is not None else None
    engine = container.engine if container is not None else find_engine()
    image = image or (container.image if container is not None else None)
    if image is None:
        image = newest(engine if selection is None else find_engine(), lock, kind)
    script = assignments({"I_ENGINE": engine, "I_IMAGE": image})
    script += (project.root / "scripts" / "image_state.sh").read_text(encoding="utf-8")
    answers = _ask(selection, script)
    report = Report("image verify")
    hosts: dict[str, Held] = {}
    for answer in answers:
        if not answer.ok:
            reason = answer.said or f"no answer ({answer.outcome.value})"
            report.unknown("image-held.no-answer", answer.host, reason=reason)
        elif (held := parse_held(answer.output)) is None:
            report.failed("image-held.missing", answer.host, image=image)
        else:
            hosts[answer.host] = held
    report.settle("image-held")
    report.absorb(judge_images(lock, kind.machine, image, hosts))
    report.data = {"image": image, "hosts": {name: held.id for name, held in hosts.items()}}
    return report


def _ask(selection: Selection | None, script: str) -> Sequence[Answer]:
    if selection is None or selection.hostfile is None:
        return [run_here("this machine", script, _SECONDS)]
    with Ssh(selection.site.ssh) as ssh, task("hosts", len(selection.hosts)) as shown:
        jobs = [(host, script) for host in selection.hosts]
        return ssh.run(jobs, _SECONDS, lambda _: shown.advance())


def run_inside(project: Project, image: str, words: Sequence[str]) -> int:
    """Run `reprise WORDS` in a container of the cpu image; its exit code.

    Run folders go to `container/` in the project's own run folder, under the same path inside as
    outside. One such container at a time: it takes a run whose process it cannot see for one that
    was cut off, so it must see no other's. Raises CannotTell when there is one, or when the engine
    starts none.
    """
    engine = find_engine()
    runs, cache = project.runs / "container", project.cache / "container"
    for folder in (runs, cache):
        folder.mkdir(parents=True, exist_ok=True)
    name = f"reprise-run-{sha256_text(str(runs))[:12]}"
    command = [engine, "run", "--rm", "--init", "--name", name, "--label", "io.reprise.run=1"]
    # One name for all: a later one knows a run of an earlier one for one of its own machine.
    command += ["--hostname", "reprise"]
    # A health check is for hosts; podman runs it by systemd, which need not be there.
    command += ["--shm-size", "2g", "--no-healthcheck", *_user(engine)]
    command += ["-v", f"{runs}:{runs}", "-v", f"{cache}:{_INSIDE}/.cache"]
    command += ["-e", f"RUNS_DIR={runs}", "-e", "HOME=/tmp", "-e", "USER=reprise"]
    if sys.stdout.isatty() and sys.stdin.isatty():
        command.append("-it")
    command += [image, f"{_INSIDE}/.venv/bin/reprise", *words]
    if _runs(engine, name):
        raise CannotTell("image-run.running", name, engine=engine, name=name)
    code = _until_ended(engine, name, command)
    if code in _NOT_STARTED:
        raise CannotTell("image-run.not-started", engine)
    return code


def _until_ended(engine: str, name: str, command: Sequence[str]) -> int:
    """Run the engine's client; SIGTERM to this command is passed on to the container.

    Otherwise only the client would end. Ctrl-C reaches the client too, which passes it on itself.
    """
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        client = subprocess.Popen(command)
        while True:
            try:
                return client.wait()
            except KeyboardInterrupt:
                if ask(engine, "kill", "--signal", "TERM", name).returncode != 0:
                    client.terminate()
    finally:
        signal.signal(signal.SIGINT, before)


def _user(engine: str) -> list[str]:
    """Files of the run belong to the user who started it, also if the engine runs as root."""
    if Path(engine).name == "podman" and os.getuid() != 0:
        return ["--userns", "keep-id"]
    done = ask(engine, "info", "--format", "{{json .SecurityOptions}}")
    # A rootless engine's root is this user already.
    return [] if "rootless" in done.stdout else ["--user", f"{os.getuid()}:{os.getgid()}"]


def _runs(engine: str, name: str) -> bool:
    done = ask(engine, "ps", "--quiet", "--filter", f"name=^/?{name}$")
    return bool(done.stdout.strip())
