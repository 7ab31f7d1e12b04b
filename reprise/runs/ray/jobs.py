"""One Ray job through Ray's own Jobs SDK: submit, state, log, stop."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from reprise.core.errors import CannotTell, OperatorError
from reprise.runs.ray.auth_token import read_token, token_refused
from reprise.runs.ray.log_tail import ENDED, LogTail
from reprise.runs.state.folder import RunFolder

__all__ = ["ENDED", "Jobs", "UnknownJob", "import_jobs_sdk", "open_jobs"]

# Ray answers with status 500 and this text; nothing else of the answer says so.
_NO_AGENT = "No available agent"
_NOT_FOUND = 404
_AGENT_SECONDS = 90.0
# A head that is reached answers in milliseconds; a long log, or a package that is stored, takes
# longer.
_CONNECT_SECONDS = 10.0
_READ_SECONDS = 60.0
_WRITE_SECONDS = 300.0


def import_jobs_sdk() -> None:
    """Import what `Jobs` needs of Ray: two seconds, which can pass while something else starts."""
    importlib.import_module("ray.job_submission")


class _NoSuchJob(RuntimeError):
    """Ray answered that it has no such job."""


class UnknownJob(CannotTell):
    """Ray knows no job with this id: it never arrived, or Ray has forgotten it."""


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

        class Client(JobSubmissionClient):
            """Ray's client with timeouts: its own would wait forever for a dashboard that hangs."""

            def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
                read = _READ_SECONDS if method == "GET" else _WRITE_SECONDS
                options.setdefault("timeout", (_CONNECT_SECONDS, read))
                return super()._do_request(method, endpoint, **options)

            def _raise_error(self, r: Any) -> None:
                if r.status_code == _NOT_FOUND:
                    raise _NoSuchJob(f"Request failed with status code {_NOT_FOUND}: {r.text}.")
                super()._raise_error(r)

        self._refusal = AuthenticationError
        self._token = token

        # Ray logs each step of its packaging; failures become findings.
        for name in ("dashboard.modules.dashboard_sdk", "dashboard.modules.job.sdk", "_private"):
            logging.getLogger(f"ray.{name}").setLevel(logging.ERROR)
        self.address = address
        headers = {"Authorization": f"Bearer {token}"} if token else None
        try:
            self._client = Client(address, headers=headers)
        except AuthenticationError:
            raise self._refused() from None
        except (OSError, RuntimeError) as error:
            raise CannotTell("run-jobs.no-answer", address, reason=error) from None

    def submit(
        self,
        job_id: str,
        entrypoint: str,
        runtime_env: Mapping[str, Any],
        metadata: Mapping[str, str],
    ) -> None:
        """Upload the working directory and submit.

        Raises OperatorError when Ray refuses the job, CannotTell when the connection breaks and
        Ray cannot be asked whether the job arrived.
        """
        deadline = time.monotonic() + _AGENT_SECONDS
        cut = False
        while True:
            try:
                self._client.submit_job(
                    entrypoint=entrypoint,
                    submission_id=job_id,
                    runtime_env=dict(runtime_env),
                    metadata=dict(metadata),
                )
                return
            except self._refusal:
                raise self._refused() from None
            except OSError as error:
                # It may have arrived: Ray is asked before it is given the job again.
                cut = True
                if time.monotonic() >= deadline:
                    raise CannotTell(
                        "run-jobs.connection-broken", self.address, job=job_id, reason=error
                    ) from None
            except (RuntimeError, ValueError) as error:
                # The API answers some seconds before the agent that starts jobs is there.
                late = _NO_AGENT in str(error) and time.monotonic() < deadline
                if not late and not (cut and self._arrived(job_id)):
                    where = f"job {job_id} at {self.address}"
                    if _NO_AGENT in str(error):
                        raise OperatorError("run-submit.no-agent", where, reason=error) from None
                    raise OperatorError("run-submit.refused", where, reason=error) from None
            if cut and self._arrived(job_id):
                return
            time.sleep(0.5)

    def _arrived(self, job_id: str) -> bool:
        """Whether Ray knows the job; False as well when it cannot be asked."""
        with contextlib.suppress(CannotTell):
            return self.find(job_id) is not None
        return False

    def _refused(self) -> OperatorError:
        return token_refused(self.address, "the Jobs API", self._token)

    def state(self, job_id: str) -> tuple[str, str]:
        """Ray's state of the job (PENDING, RUNNING, SUCCEEDED, ...) and its message.

        Raises UnknownJob when Ray has no such job, CannotTell when the API does not answer,
        OperatorError when it asks for another token.
        """
        try:
            info = self._client.get_job_info(job_id)
        except self._refusal:
            raise self._refused() from None
        except (RuntimeError, OSError) as error:
            kind = UnknownJob if isinstance(error, _NoSuchJob) else CannotTell
            raise kind("run-jobs.state", self.address, job=job_id, reason=error) from None
        return str(info.status), info.message or ""

    def find(self, job_id: str) -> str | None:
        """Ray's state of the job, None when Ray knows no such job; CannotTell as for `state`."""
        try:
            return self.state(job_id)[0]
        except UnknownJob:
            return None

    def unfinished(self) -> list[str]:
        """Submission ids of the jobs that have not ended; a driver of its own counts by its id.

        Raises as `state`.
        """
        try:
            jobs = self._client.list_jobs()
        except self._refusal:
            raise self._refused() from None
        except (RuntimeError, OSError) as error:
            raise CannotTell("run-jobs.no-answer", self.address, reason=error) from None
        return [
            str(job.submission_id or job.job_id) for job in jobs if str(job.status) not in ENDED
        ]

    def log(self, job_id: str) -> str:
        """The job's whole log so far. Raises as `state`."""
        try:
            return str(self._client.get_job_logs(job_id))
        except self._refusal:
            raise self._refused() from None
        except (RuntimeError, OSError) as error:
            raise CannotTell("run-jobs.log", self.address, job=job_id, reason=error) from None

    def stop(self, job_id: str) -> None:
        """Ask Ray to stop the job; an ended job or an unreachable API is not an error."""
        with contextlib.suppress(RuntimeError, OSError, self._refusal):
            self._client.stop_job(job_id)

    def tail(self, job_id: str, log: Path, on_line: Callable[[str], None]) -> LogTail:
        """Follow the job's log in a thread of its own, into the file `log`.

        A file that holds a part of the log already is continued. Its lines are given to `on_line`
        first, so that a command that attaches again knows the earlier lines.
        """
        return LogTail(self._client, job_id, log, on_line)


def open_jobs(folder: RunFolder) -> Jobs:
    """The Jobs API that a run was submitted to.

    Raises CannotTell when the run knows none or it does not answer, OperatorError when it asks
    for another token.
    """
    state = folder.read()
    if not state.address:
        raise CannotTell(
            "run-address.no-job",
            folder.name,
            status=state.status,
            run=folder.name,
        )
    return Jobs(state.address, read_token(state.token_file))
