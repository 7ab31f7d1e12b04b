"""A private Ray for one run on this machine: short temp dir, free ports, a token, known pids."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.files import write_text
from reprise.core.parallel import undisturbed
from reprise.core.wait import wait_until
from reprise.runs.ray.processes import MARK, stop_all
from reprise.runs.ray.segments import Segments, remove_segments

__all__ = [
    "LocalRay",
    "free_port",
    "new_temp_dir",
    "remove_leftovers",
    "session_logs",
    "start_local_ray",
]

_READY_SECONDS = 90.0
_SESSION_FOLDER = "reprise-ray-"
_SEGMENTS = "segments"
_RAY_FOLDER = "r"
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
# The workers of a cluster take those up to here (reprise/cluster/site.py).
_LOWEST_PORT = 20_000


@dataclass(frozen=True, slots=True)
class LocalRay:
    """A running private Ray. `address` is the Jobs API's, `token_file` opens it."""

    run_id: str
    address: str
    temp_dir: Path
    token_file: Path
    pid: int
    created: float
    segments: Segments

    def stop(self) -> list[int]:
        """Stop its processes, remove its shared memory and temp dir; returns pids that stay."""
        with undisturbed():
            return self._stop()

    def _stop(self) -> list[int]:
        launcher = []
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.created) < 1:
                launcher.append(process)
        self.segments.close()
        left = stop_all(self.run_id, first=launcher)
        if not left:
            remove_segments(self.temp_dir / _SEGMENTS)
            shutil.rmtree(self.temp_dir, ignore_errors=True)
        return left


def new_temp_dir() -> Path:
    """An empty folder for one private Ray; its path is short, as Ray's sockets need it.

    Ray appends up to 70 characters for its sockets, whose paths are limited to 107 bytes.
    """
    return Path(tempfile.mkdtemp(prefix=_SESSION_FOLDER, dir=_short_root()))


def session_logs(temp_dir: Path) -> Path:
    """The folder of the logs of the Ray that runs, or ran last, in `temp_dir`."""
    return temp_dir / _RAY_FOLDER / "session_latest" / "logs"


def start_local_ray(
    python: Path,
    run_id: str,
    slots: int,
    temp_dir: Path,
    log: Path,
    holds: Sequence[int] = (),
    meanwhile: Callable[[], None] = lambda: None,
) -> LocalRay:
    """Start Ray with the interpreter `python`, offering `slots` logical GPUs, and wait for it.

    `temp_dir` is a folder of `new_temp_dir`. Ray's own messages go to the file `log`. `holds` are
    file handles that Ray's launcher keeps open as long as it lives; `meanwhile` is called once
    while it starts.
    Raises OperatorError when Ray ends during its start, CannotTell when it does not answer.
    """
    token_file = temp_dir / "token"
    write_text(token_file, secrets.token_hex(32), mode=0o600)
    dashboard = free_port()
    variables = {
        **os.environ,
        MARK: run_id,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_file),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
        # Ray lowers its workers' priority by default: on a busy machine they would starve.
        "RAY_worker_niceness": "0",
        # Ray would start one idle Python per logical CPU: each is CPU time taken from start-up.
        "RAY_enable_worker_prestart": "0",
        "RAY_prestart_worker_first_driver": "0",
        # Statistics of every process, every five seconds, for a dashboard that is not used.
        "REPORTER_UPDATE_INTERVAL_MS": "60000",
        "RAY_enable_metrics_collection": "false",
    }
    command = [
        *(str(python.parent / "ray"), "start", "--head", "--block"),
        *("--node-ip-address", "127.0.0.1", "--port", str(free_port())),
        *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(dashboard)),
        # verl reserves three for each GPU, and one for each of a dozen other processes.
        *("--num-cpus", str(max(16, 8 * slots)), "--num-gpus", str(slots)),
        *("--object-store-memory", str(512 * 2**20)),
        *("--ray-client-server-port", str(free_port())),
        *("--dashboard-agent-listen-port", str(free_port())),
        *("--temp-dir", str(temp_dir / _RAY_FOLDER), "--disable-usage-stats"),
    ]
    ray: LocalRay | None = None
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=temp_dir,
                pass_fds=holds,
            )
        ray = LocalRay(
            run_id=run_id,
            address=f"http://127.0.0.1:{dashboard}",
            temp_dir=temp_dir,
            token_file=token_file,
            pid=process.pid,
            created=psutil.Process(process.pid).create_time(),
            segments=Segments(run_id, temp_dir / _SEGMENTS),
        )
        meanwhile()
        _wait_ready(ray, process, log)
    except BaseException:
        # Also processes of an interrupted start: they are found by their mark.
        if ray is None or ray.stop():
            remove_leftovers(run_id, temp_dir)
        raise
    return ray


def _wait_ready(ray: LocalRay, process: subprocess.Popen[bytes], log: Path) -> None:
    headers = {"Authorization": f"Bearer {ray.token_file.read_text(encoding='utf-8')}"}

    def answers() -> bool:
        if process.poll() is not None:
            tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
            raise OperatorError(
                "run-ray.exited",
                str(log),
                code=process.returncode,
                tail=" | ".join(tail),
                log=log,
            )
        with contextlib.suppress(httpx2.HTTPError):
            return client.get(f"{ray.address}/api/jobs/").status_code == 200
        return False

    # trust_env would send 127.0.0.1 through a site's proxy.
    with httpx2.Client(trust_env=False, headers=headers, timeout=5.0) as client:
        if wait_until(answers, _READY_SECONDS):
            return
    raise CannotTell(
        "run-ray.no-answer", str(log), seconds=_READY_SECONDS, address=ray.address, log=log
    )


def _short_root() -> str:
    """A writable folder with a short path: the system's temp dir unless that is long."""
    root = tempfile.gettempdir()
    return root if len(root) <= 20 else "/tmp"  # noqa: S108


def free_port() -> int:
    """A TCP port that was free a moment ago, below those that outgoing connections are given.

    One of theirs may be taken before Ray binds it; then its agent lives on without its server, and
    no job can be submitted (ray/dashboard/agent.py, 2.60).
    """
    given = _OUTGOING.read_text(encoding="utf-8").split() if _OUTGOING.exists() else ["32768"]
    below = range(_LOWEST_PORT, int(given[0]))
    for port in (*random.sample(below, min(len(below), 100)), 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return int(probe.getsockname()[1])
    raise CannotTell("run-ray.no-port", "this machine")


def remove_leftovers(run_id: str, temp_dir: Path) -> list[int]:
    """Stop the processes that an interrupted run left; returns the pids that did not end.

    Only processes that carry `run_id` are touched, and only a folder of our own naming.
    """
    with undisturbed():
        left = stop_all(run_id)
        if not left and temp_dir.name.startswith(_SESSION_FOLDER):
            remove_segments(temp_dir / _SEGMENTS)
            shutil.rmtree(temp_dir, ignore_errors=True)
    return left
