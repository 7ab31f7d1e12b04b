"""One Ray job through Ray's own Jobs SDK: submit, state, log, stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from reprise.errors import CannotTell, OperatorError
from reprise.run.folder import RunFolder

__all__ = ["ENDED", "Jobs", "LogTail", "open_jobs", "read_token"]

ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
"""The states in which Ray will not run the job any more."""

_NO_AGENT = "No available agent"
_AGENT_SECONDS = 90.0
# For the rest of a log; an API that went away with its cluster is not waited for longer.
_REST_SECONDS = 10.0


class Jobs:
    """The Jobs API at `address`; `token` is sent as a header and never logged."""

    def __init__(self, address: str, token: str | None) -> None:
        # A site's proxy cannot reach the cluster's own addresses.
        host = urlsplit(address).hostname or ""
        for name in ("NO_PROXY", "no_proxy"):
            entries = [entry for entry in os.environ.get(name, "").split(",") if entry]
            if host not in entries:
                os.environ[name] = ",".join([*entries, host])
        # Ray would apply every .gitignore below the working directory on top of the excludes,
        # and so drop the checkouts in third_party/.
        os.environ["RAY_RUNTIME_ENV_IGNORE_GITIGNORE"] = "1"
        # Imported here: the other commands need not wait for it.
        from ray.exceptions import AuthenticationError
        from ray.job_submission import JobSubmissionClient

        # Ray reports its packaging step by step; what matters of it becomes a finding.
        for name in ("dashboard.modules.dashboard_sdk", "dashboard.modules.job.sdk", "_private"):
            logging.getLogger(f"ray.{name}").setLevel(logging.ERROR)
        self.address = address
        headers = {"Authorization": f"Bearer {token}"} if token else None
        try:
            self._client = JobSubmissionClient(address, headers=headers)
        except AuthenticationError:
            raise OperatorError(
                "run-token",
                address,
                f"the Jobs API asks for a token, and {'refused ours' if token else 'got none'}",
                "name the file that holds the cluster's token: RAY_AUTH_TOKEN_PATH=<file>",
            ) from None
        except (ConnectionError, RuntimeError) as error:
            raise CannotTell(
                "run-jobs",
                address,
                f"the Jobs API did not answer: {error}",
                "name the dashboard's address (port 8265 by default), not the cluster's own port",
            ) from None

    def submit(
        self,
        job_id: str,
        entrypoint: str,
        runtime_env: Mapping[str, Any],
        metadata: Mapping[str, str],
    ) -> None:
        """Upload the working directory and submit; raises OperatorError as Ray refuses it."""
        deadline = time.monotonic() + _AGENT_SECONDS
        while True:
            try:
                self._client.submit_job(
                    entrypoint=entrypoint,
                    submission_id=job_id,
                    runtime_env=dict(runtime_env),
                    metadata=dict(metadata),
                )
                return
            except (RuntimeError, ValueError) as error:
                # The API answers some seconds before the agent that starts jobs is there.
                if _NO_AGENT in str(error) and time.monotonic() < deadline:
                    time.sleep(0.5)
                    continue
                raise OperatorError(
                    "run-submit",
                    f"job {job_id} at {self.address}",
                    f"Ray refused the job: {error}",
                    "check runtime_env.yaml: the size of the working directory, its excludes",
                ) from None

    def state(self, job_id: str) -> tuple[str, str]:
        """Ray's state of the job (PENDING, RUNNING, SUCCEEDED, ...) and its message.

        Raises CannotTell when the API does not answer.
        """
        try:
            info = self._client.get_job_info(job_id)
        except (RuntimeError, OSError) as error:
            raise CannotTell(
                "run-jobs",
                self.address,
                f"the state of job {job_id} could not be read: {error}",
                "check that the head node is up and reachable, then repeat the command",
            ) from None
        return str(info.status), info.message or ""

    def find(self, job_id: str) -> str | None:
        """Ray's state of the job, None when Ray knows no such job; CannotTell as for `state`."""
        try:
            return self.state(job_id)[0]
        except CannotTell as error:
            if "404" in error.message:
                return None
            raise

    def log(self, job_id: str) -> str:
        """The job's whole log so far. Raises CannotTell when the API does not answer."""
        try:
            return str(self._client.get_job_logs(job_id))
        except (RuntimeError, OSError) as error:
            raise CannotTell(
                "run-jobs",
                self.address,
                f"the log of job {job_id} could not be read: {error}",
                "check that the head node is up and reachable, then repeat the command",
            ) from None

    def stop(self, job_id: str) -> None:
        """Ask Ray to stop the job; a job that has ended, or an API that is gone, is no error."""
        with contextlib.suppress(RuntimeError, OSError):
            self._client.stop_job(job_id)

    def tail(self, job_id: str, log: Path, on_line: Callable[[str], None]) -> LogTail:
        """Follow the job's log in a thread of its own, into the file `log`.

        A file that holds a part of the log already is continued. Its lines are given to `on_line`
        first, so that who attaches again knows what was said before.
        """
        return LogTail(self._client, job_id, log, on_line)


class LogTail:
    """Copies a job's log to a file as it grows, and hands each whole line to `on_line`."""

    def __init__(self, client: Any, job_id: str, log: Path, on_line: Callable[[str], None]) -> None:
        self._client = client
        self._job_id = job_id
        self._log = log
        self._on_line = on_line
        self._seen = 0
        self._pending = ""
        self._rest = False
        self._closed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="job-log", daemon=True)
        self._thread.start()

    def close(self, rest: bool) -> None:
        """End the copy; with `rest`, what it lacks is fetched first, as far as Ray answers.

        Ray itself ends its stream of a job's log some seconds after the job.
        """
        self._rest = rest
        with contextlib.suppress(RuntimeError):  # the stream has ended by itself
            self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join(_REST_SECONDS)

    def _run(self) -> None:
        try:
            # A disk that is full or gone is the watch's to tell; the job keeps its own log.
            with contextlib.suppress(OSError):
                self._loop.run_until_complete(self._copy())
        finally:
            self._loop.close()

    async def _copy(self) -> None:
        self._know()
        with self._log.open("ab") as file:
            stream = asyncio.ensure_future(self._stream(file))
            closed = asyncio.ensure_future(self._closed.wait())
            await asyncio.wait({stream, closed}, return_when=asyncio.FIRST_COMPLETED)
            for task in (stream, closed):
                task.cancel()
            await asyncio.gather(stream, closed, return_exceptions=True)
            if self._rest:
                with contextlib.suppress(RuntimeError, OSError):
                    self._take(file, str(self._client.get_job_logs(self._job_id)), 0)
        if self._pending:
            self._on_line(self._pending)

    def _know(self) -> None:
        """Give what the file holds to `on_line`."""
        with contextlib.suppress(FileNotFoundError):
            text = self._log.read_bytes().decode(errors="replace")
            self._seen = len(text)
            self._lines(text)

    async def _stream(self, file: IO[bytes]) -> None:
        while True:
            position = 0
            try:
                async for chunk in self._client.tail_job_logs(self._job_id):
                    self._take(file, chunk, position)
                    position += len(chunk)
                return
            except Exception:
                # The connection broke or the job has no log yet: Ray sends the whole log again on
                # the next connection.
                await asyncio.sleep(0.5)

    def _take(self, file: IO[bytes], text: str, position: int) -> None:
        """Write what is new of `text`, which begins at character `position` of the log."""
        fresh = text[max(self._seen - position, 0) :]
        if fresh:
            self._seen = position + len(text)
            file.write(fresh.encode(errors="replace"))
            file.flush()
            self._lines(fresh)

    def _lines(self, text: str) -> None:
        *lines, self._pending = (self._pending + text).split("\n")
        for line in lines:
            self._on_line(line)


def open_jobs(folder: RunFolder) -> Jobs:
    """The Jobs API that a run was submitted to.

    Raises CannotTell when the run knows none or it does not answer, OperatorError when it asks
    for another token.
    """
    facts = folder.read()
    address, token_file = facts.get("address"), facts.get("token_file")
    if not address:
        raise CannotTell(
            "run-address",
            folder.name,
            f"nothing of this run is running (state {facts.get('state')})",
            f"take it up again: reprise train --resume {folder.name}",
        )
    return Jobs(str(address), read_token(token_file))


def read_token(token_file: str | Path | None) -> str | None:
    """The token in the file; None without a file. Raises CannotTell when it cannot be read."""
    if not token_file:
        return None
    try:
        return Path(token_file).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise CannotTell(
            "run-token",
            str(token_file),
            f"the token of the Jobs API cannot be read here: {error}",
            "use the machine and the user that started the cluster, or name a copy of the token: "
            "RAY_AUTH_TOKEN_PATH=<file>",
        ) from None
