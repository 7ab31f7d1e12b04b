"""What the Jobs API's status says of a job: Ray's own client, a server with fixed answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from reprise.core.errors import CannotTell
from reprise.runs.ray.jobs import Jobs, UnknownJob

# What Ray answers for the job, by the job's id.
ANSWERS = {
    "gone": (404, "Job gone does not exist"),
    "status code 404": (500, "Traceback: status code 404 is in this text"),
}


class Dashboard(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = 200, json.dumps({"version": "4", "ray_version": "2", "ray_commit": "x"})
        if not self.path.startswith("/api/version"):
            job = self.path.rpartition("/")[2].replace("%20", " ")
            status, body = ANSWERS.get(job, (500, "no answer is known"))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Dashboard) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Jobs(f"http://127.0.0.1:{server.server_port}", None)
        server.shutdown()


def test_the_status_decides_and_not_the_text(jobs: Jobs) -> None:
    assert jobs.find("gone") is None
    with pytest.raises(UnknownJob, match="does not exist"):
        jobs.state("gone")
    with pytest.raises(CannotTell) as caught:
        jobs.find("status code 404")
    assert not isinstance(caught.value, UnknownJob)
