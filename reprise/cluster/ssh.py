"""Run one script on many hosts through the OpenSSH client.

It is the user's own client, so ssh_config, agent, jump hosts and known_hosts work as usual.
The remote command is the constant `sh -s`; the script and its parameters arrive on standard input,
quoted: names and values are never part of a command line, local or remote.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from reprise.cluster.answer import Answer, AnswerKind, classify
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.site import SshSettings
from reprise.core.errors import CannotTell
from reprise.core.parallel import undisturbed

__all__ = ["Job", "Ssh", "assignments", "framed", "login_words", "run_here"]

_MOST_OUTPUT = 4 * 2**20
_SAID_LINES = 12
_T = TypeVar("_T")

Job = tuple[Host, str]
"""A host and the whole script for it."""


def assignments(values: Mapping[str, str], export: bool = False) -> str:
    """Shell lines that set each variable to exactly its value, whatever it contains."""
    word = "export " if export else ""
    return "".join(f"{word}{name}={shlex.quote(text)}\n" for name, text in values.items())


def framed(script: str, nonce: str) -> str:
    """The script between two marks, as one compound command.

    A shell reads a compound command whole before it starts it: a connection that breaks while
    the script is sent runs nothing, and no command can read the rest of it from standard input.
    """
    return (
        f"printf '\\n@@begin {nonce}\\n'\n(\n{script}\n) </dev/null\n"
        f"printf '\\n@@end {nonce} %s\\n' \"$?\"\n"
    )


def login_words(host: Host, settings: SshSettings) -> list[str]:
    """The command that logs in to `host`, as an operator types it: ssh -F FILE -p PORT HOST."""
    words = ["ssh"]
    if settings.config:
        words += ["-F", settings.config]
    if host.port is not None:
        words += ["-p", str(host.port)]
    return [*words, f"{host.user}@{host.name}" if host.user else host.name]


class Ssh:
    """Connections to hosts, shared by all calls; a context manager that closes what it opened.

    Raises CannotTell when this machine has no OpenSSH client.
    """

    def __init__(self, settings: SshSettings) -> None:
        self.settings = settings
        if shutil.which("ssh") is None:
            raise CannotTell("ssh.not-installed", "ssh")
        # Sockets have paths of at most 107 bytes: a short folder, whatever TMPDIR says.
        root = tempfile.gettempdir()
        folder = tempfile.mkdtemp(prefix="rp-", dir=root if len(root) < 40 else "/tmp")  # noqa: S108
        self._folder = Path(folder)
        self._sockets: dict[Host, Path] = {}

    def __enter__(self) -> Self:
        """Nothing is opened before the first call."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close every connection and remove the sockets."""
        live = [host for host, socket in self._sockets.items() if socket.exists()]
        try:
            asyncio.run(self._close(live))
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def run(
        self,
        jobs: Sequence[Job],
        limit: float,
        on_answer: Callable[[Answer], None] | None = None,
        at_once: int | None = None,
        on_wait: Callable[[Sequence[str]], None] | None = None,
    ) -> list[Answer]:
        """Run each job's script on its host, at most `limit` seconds each; answers in order.

        At most `at_once`, by default `settings.parallel`, run at once. A host that hangs is
        abandoned at its own limit and does not delay the others. `on_answer` is called as answers
        come in, `on_wait` every second with the names of the hosts that have not answered.
        """
        gate = at_once or self.settings.parallel
        return _completed(self._run(jobs, limit, on_answer, gate, on_wait))

    def command(self, host: Host) -> list[str]:
        """The client's command line for `host`, without its trailing `sh -s`."""
        socket = self._sockets.setdefault(host, self._folder / str(len(self._sockets)))
        words = ["ssh"]
        if self.settings.config:
            words += ["-F", self.settings.config]
        for option in (
            *("BatchMode=yes", "StrictHostKeyChecking=yes", "LogLevel=ERROR"),
            f"ConnectTimeout={self.settings.connect_timeout}",
            *("ServerAliveInterval=5", "ServerAliveCountMax=3"),
            *("ControlMaster=auto", "ControlPersist=60", f"ControlPath={socket}"),
            *("RemoteCommand=none", "RequestTTY=no", "ClearAllForwardings=yes"),
        ):
            words += ["-o", option]
        if host.port is not None:
            words += ["-p", str(host.port)]
        if host.user is not None:
            words += ["-l", host.user]
        return [*words, "--", host.name]

    def shown(self, host: Host) -> str:
        """The command line that logs in to `host`, as an operator types it."""
        return shlex.join(login_words(host, self.settings))

    async def _run(
        self,
        jobs: Sequence[Job],
        limit: float,
        on_answer: Callable[[Answer], None] | None,
        at_once: int,
        on_wait: Callable[[Sequence[str]], None] | None,
    ) -> list[Answer]:
        gate = asyncio.Semaphore(at_once)

        async def one(host: Host, script: str) -> Answer:
            async with gate:
                connected = self._sockets.get(host, self._folder / "none").exists
                words = [*self.command(host), "sh", "-s"]
                answer = await _call(host.name, words, script, limit, connected)
            if on_answer is not None:
                on_answer(answer)
            return answer

        names = {asyncio.ensure_future(one(host, script)): host.name for host, script in jobs}
        # A list: a host may have several jobs.
        tasks = list(names)
        try:
            while on_wait is not None and (open_tasks := [t for t in tasks if not t.done()]):
                await asyncio.wait(open_tasks, timeout=1)
                on_wait([names[task] for task in open_tasks if not task.done()])
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _close(self, hosts: Sequence[Host]) -> None:
        async def one(host: Host) -> None:
            words = ["ssh", "-O", "exit", "-o", f"ControlPath={self._sockets[host]}", "--", "x"]
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 5)

        await asyncio.gather(*(one(host) for host in hosts))


def run_here(name: str, script: str, limit: float) -> Answer:
    """Run the script on this machine, in the same frame, without SSH."""
    return _completed(_call(name, ["sh", "-s"], script, limit, lambda: True))


def _completed(work: Coroutine[Any, Any, _T]) -> _T:
    """asyncio.run, whose end (clients are killed) a second interrupt does not leave half done."""
    runner = asyncio.Runner()
    try:
        return runner.run(work)
    finally:
        with undisturbed():
            runner.close()


async def _call(
    name: str, words: Sequence[str], script: str, limit: float, connected: Callable[[], bool]
) -> Answer:
    nonce = secrets.token_hex(8)
    with (
        tempfile.TemporaryFile() as source,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        source.write(framed(script, nonce).encode())
        source.seek(0)
        began = time.time()
        # Files, not pipes: a connection that stays open for later calls holds none of our pipes.
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=source,
            stdout=out,
            stderr=err,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
        status: int | None = None
        try:
            status = await asyncio.wait_for(process.wait(), limit)
        except TimeoutError:
            pass
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        ended = time.time()
        said = _text(err)
        outcome, code, output = classify(_text(out), said, status, nonce, connected())
    tail = "\n".join(said.strip().splitlines()[-_SAID_LINES:])
    if status is None and outcome in (AnswerKind.HUNG, AnswerKind.UNREACHABLE):
        tail = f"no answer within {limit:.0f} s" + (f": {tail}" if tail else "")
    return Answer(name, outcome, code, output, tail, began, ended)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MOST_OUTPUT).decode(errors="replace").replace("\r\n", "\n")
