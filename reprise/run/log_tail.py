"""A job's log followed as it grows, by a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

__all__ = ["LogTail"]

# For the rest of a log; an API that went away with its cluster is not waited for longer.
_REST_SECONDS = 10.0


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
