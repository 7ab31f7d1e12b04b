"""A job's log followed as it grows, by a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

__all__ = ["ENDED", "LogTail"]

ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
"""The states in which Ray will not run the job any more."""

# For the rest of a log; an API that went away with its cluster is not waited for longer.
_REST_SECONDS = 10.0
# After this time without data the stream is opened again: the network may have dropped it.
_SILENT_SECONDS = 900.0
_AGAIN_SECONDS = 0.5


class LogTail:
    """Copies a job's log to a file as it grows, and hands each whole line to `on_line`."""

    def __init__(self, client: Any, job_id: str, log: Path, on_line: Callable[[str], None]) -> None:
        self._client = client
        self._job_id = job_id
        self._log = log
        self._on_line = on_line
        self._seen = 0
        self._pending = ""
        self._owed = b""
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
            # The watch reports a full or missing disk; the job keeps its own log.
            with contextlib.suppress(OSError):
                self._loop.run_until_complete(self._copy())
        finally:
            self._loop.close()

    async def _copy(self) -> None:
        self._know()
        # Without a buffer: how much of it a full disk has taken is known.
        with self._log.open("ab", buffering=0) as file:
            stream = asyncio.ensure_future(self._stream(file))
            closed = asyncio.ensure_future(self._closed.wait())
            await asyncio.wait({stream, closed}, return_when=asyncio.FIRST_COMPLETED)
            whole = stream.done() and not stream.cancelled()
            for task in (stream, closed):
                task.cancel()
            await asyncio.gather(stream, closed, return_exceptions=True)
            if self._rest:
                with contextlib.suppress(RuntimeError, OSError):
                    self._take(file, str(self._client.get_job_logs(self._job_id)), 0)
                    whole = True
        # A line that is cut here may continue elsewhere: a number in it could lack digits.
        if self._pending and whole:
            self._tell(self._pending)

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
                lines = aiter(self._client.tail_job_logs(self._job_id))
                while chunk := await asyncio.wait_for(anext(lines, ""), _SILENT_SECONDS):
                    self._take(file, chunk, position)
                    position += len(chunk)
                # A head that is restarted ends the stream as the end of the job does.
                state = await asyncio.to_thread(self._client.get_job_status, self._job_id)
                if str(state) in ENDED:
                    return
            except Exception:  # noqa: S110 (whatever it is, it is tried again)
                # The connection broke or the job has no log yet: Ray sends the whole log again on
                # the next connection.
                pass
            await asyncio.sleep(_AGAIN_SECONDS)

    def _take(self, file: IO[bytes], text: str, position: int) -> None:
        """Write what is new of `text`, which begins at character `position` of the log.

        What a full disk does not take is written as soon as it does.
        """
        fresh = text[max(self._seen - position, 0) :]
        if fresh:
            self._seen = position + len(text)
            self._owed += fresh.encode(errors="replace")
            with contextlib.suppress(OSError):
                while self._owed:
                    self._owed = self._owed[file.write(self._owed) :]
            self._lines(fresh)

    def _lines(self, text: str) -> None:
        *lines, self._pending = (self._pending + text).split("\n")
        for line in lines:
            self._tell(line)

    def _tell(self, line: str) -> None:
        # Who hears it may have to write as well; a line that fails there takes no other along.
        with contextlib.suppress(OSError):
            self._on_line(line)
