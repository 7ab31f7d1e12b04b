"""A run's page over HTTP, on this machine alone, for who knows its token."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.core.project import Project
from reprise.curves.live import live_page
from reprise.flows.judge.judging import past_of_folder
from reprise.flows.runs import run_status
from reprise.metrics import read_run
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import LIVE
from reprise.runs.watch.seen import table_rows

__all__ = ["PageServer", "page_of"]

REFRESH_SECONDS = 10
_HOST = "127.0.0.1"
# Several windows, or a reload by hand, are answered from one look.
_FRESH_SECONDS = 2.0


def page_of(project: Project, run: str | None) -> str:
    """The page of a run as it is now, the newest by default. Raises as `run_status`."""
    status = run_status(project, run)
    folder = RunFolder(Path(status.report.data["path"]))
    table = None
    with suppress(OperatorError):  # no metrics yet
        table = read_run(folder.path)
    seconds = REFRESH_SECONDS if status.seen.state in LIVE else None
    rows = list(table_rows(status.seen))
    findings = status.report.findings
    return live_page(status.seen.run, rows, findings, table, past_of_folder(folder), seconds)


class PageServer:
    """Serves `page` at `url`, whose path is a token; a context manager.

    Listens on the loopback interface alone. Any other path, and any other name of the host (a page
    of the internet that a browser was led to ask here), is answered with 404 or 403.
    """

    def __init__(self, page: Callable[[], str], port: int = 0) -> None:
        self._page = page
        self._token = secrets.token_urlsafe(24)
        self._lock = threading.Lock()
        self._made, self._kept = float("-inf"), ""
        try:
            self._server = ThreadingHTTPServer((_HOST, port), self._handler())
        except OSError as error:
            raise OperatorError(
                "status-serve.port", f"{_HOST}:{port}", reason=error.strerror
            ) from None
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{_HOST}:{self.port}/{self._token}/"

    def __enter__(self) -> PageServer:
        threading.Thread(target=self._server.serve_forever, name="page", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _fresh(self) -> str:
        with self._lock:
            if time.monotonic() - self._made > _FRESH_SECONDS:
                self._kept, self._made = self._page(), time.monotonic()
            return self._kept

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            server_version, sys_version = "reprise", ""

            def do_GET(self) -> None:
                names = {f"{_HOST}:{owner.port}", f"localhost:{owner.port}"}
                if self.headers.get("Host") not in names:
                    self._answer(HTTPStatus.FORBIDDEN, "not this host\n", "text/plain")
                elif not secrets.compare_digest(self.path.encode(), f"/{owner._token}/".encode()):
                    self._answer(HTTPStatus.NOT_FOUND, "not found\n", "text/plain")
                else:
                    self._give_page()

            def _give_page(self) -> None:
                try:
                    text = owner._fresh()
                except OperatorError as error:
                    text = f"{error.where}: {error.message}\n{error.fix}\n"
                    self._answer(HTTPStatus.SERVICE_UNAVAILABLE, text, "text/plain")
                else:
                    self._answer(HTTPStatus.OK, text, "text/html")

            def _answer(self, code: HTTPStatus, text: str, kind: str) -> None:
                body = text.encode()
                self.send_response(code)
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.send_header("Referrer-Policy", "no-referrer")
                self.send_header("X-Content-Type-Options", "nosniff")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Requests hold the token: nothing of them is logged."""

        return Handler
