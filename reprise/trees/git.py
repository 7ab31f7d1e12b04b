"""Run the git command: quiet, unattended, cleaned of the caller's repository, stoppable."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

from reprise.core.children import end_session, signal_session
from reprise.core.errors import CannotTell
from reprise.core.findings import without_credentials

__all__ = ["GitError", "OnLine", "git", "git_dir_env", "stop_running", "without_credentials"]

OnLine = Callable[[str], None]

# The git processes of this process that run now: threads that wait for them get no interrupt.
_running: set[subprocess.Popen[bytes]] = set()
# When each was first asked to end.
_asked: WeakKeyDictionary[subprocess.Popen[bytes], float] = WeakKeyDictionary()
# Then it is killed: git's own handler can hang, in what the signal cut short.
_GRACE_SECONDS = 5.0

# Variables that would point a git started here at the caller's own repository or index.
_REPOSITORY_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
)
_SETTINGS = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
    # ext:: and the like would run what a lock or a mirror names.
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "LC_ALL": "C",
}
# A transfer that moves less than 1 KB/s for a minute is given up.
_CONFIG = ("http.lowSpeedLimit=1000", "http.lowSpeedTime=60", "advice.detachedHead=false")


class GitError(CannotTell):
    """A git command failed; `stderr` is what it said, without credentials in URLs."""

    def __init__(self, args: Sequence[str], code: int, stderr: str) -> None:
        self.command = without_credentials(f"git {' '.join(args)}")
        self.code = code
        self.stderr = without_credentials(stderr).strip()
        fix = "read git's message, then repeat the command"
        owned = re.search(r"dubious ownership in repository at '(.+)'", self.stderr)
        if owned:
            path = shlex.quote(owned[1])
            fix = f"git config --global --add safe.directory {path}, if the folder is trusted"
        super().__init__("git", self.command, self.last_line, fix)

    @property
    def last_line(self) -> str:
        """The line that names the cause: the server's own, else git's last, else the last."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        remote = [line for line in lines if line.startswith(("remote: fatal", "remote: error"))]
        named = [line for line in lines if line.startswith(("fatal:", "error:"))]
        return (remote or named or lines or [f"exit code {self.code}"])[-1]


def git_dir_env(folder: Path) -> dict[str, str]:
    """Variables that keep git from taking a repository above `folder` for the one in it."""
    return {"GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)}


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in _REPOSITORY_VARIABLES}
    return kept | _SETTINGS | dict(extra)


def git(
    *args: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    config: Sequence[str] = (),
    on_line: OnLine | None = None,
) -> str:
    """Run `git args` and return its standard output; `on_line` is called with progress lines.

    Git gets no terminal, so that it fails where it would ask. When this process is interrupted,
    git and its helpers are stopped before the interruption goes on.
    Raises GitError when git fails, CannotTell when there is no git.
    """
    command = ["git"]
    for setting in (*_CONFIG, *config):
        command += ["-c", setting]
    try:
        process = subprocess.Popen(
            [*command, *args],
            cwd=cwd,
            env=_environment({**(git_dir_env(cwd) if cwd else {}), **(env or {})}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        if cwd is not None and not cwd.is_dir():
            raise
        fix = "install git 2.34 or later"
        raise CannotTell("git", "git", "the git command is not on PATH", fix) from error
    _running.add(process)
    try:
        stdout, stderr = _drain(process, on_line)
    except BaseException:
        end_session(process, _GRACE_SECONDS)
        raise
    finally:
        _running.discard(process)
    if process.returncode != 0:
        raise GitError(args, process.returncode, stderr)
    return stdout


def _drain(process: subprocess.Popen[bytes], on_line: OnLine | None) -> tuple[str, str]:
    """Standard output and error of `process`; progress goes to `on_line` as it comes."""
    if on_line is None:
        out, err = process.communicate()
        return out.decode(errors="surrogateescape"), err.decode(errors="replace")
    assert process.stderr is not None and process.stdout is not None
    kept: list[str] = []
    pending = b""
    while chunk := os.read(process.stderr.fileno(), 4096):
        *lines, pending = re.split(rb"[\r\n]", pending + chunk)
        for raw in lines:
            line = raw.decode(errors="replace")
            on_line(line)
            kept = [*kept[-40:], line]
    kept.append(pending.decode(errors="replace"))
    out = process.stdout.read()
    process.wait()
    return out.decode(errors="surrogateescape"), "\n".join(kept)


def stop_running() -> None:
    """End every git that threads of this process wait for; each of them gets a GitError.

    Called again until they have ended: one that does not end when it is asked to is killed.
    """
    for process in list(_running):
        now = time.monotonic()
        late = now - _asked.setdefault(process, now) > _GRACE_SECONDS
        signal_session(process, signal.SIGKILL if late else signal.SIGTERM)
