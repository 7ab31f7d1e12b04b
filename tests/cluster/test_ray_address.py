"""RAY_ADDRESS set: the doctor of this machine asks that Ray, whatever answers there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from reprise.cluster.ray_address import ask_ray

STATES = ("ALIVE", "ALIVE", "DEAD")
RAYLETS = [
    {"nodeId": str(n), "state": state, "resourcesTotal": {"GPU": 8}}
    for n, state in enumerate(STATES)
]
NODES = {"data": {"summary": [{"ip": "10.8.0.1", "raylet": raylet} for raylet in RAYLETS]}}


class Dashboard(BaseHTTPRequestHandler):
    """Answers as the dashboard does, with a token."""

    def do_GET(self) -> None:
        good = self.headers.get("Authorization") == "Bearer right"
        self.send_response(200 if good else 401)
        self.end_headers()
        self.wfile.write(json.dumps(NODES).encode() if good else b"")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def dashboard() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Dashboard)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_answers(dashboard: str, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("right\n")
    wrong.write_text("wrong\n")
    report = ask_ray(dashboard, str(right))
    assert report.exit_code == 0
    assert "2 nodes alive with 16 GPUs, 1 dead" in report.findings[0].message
    assert ask_ray(dashboard, str(wrong)).exit_code == 1
    assert ask_ray(dashboard, str(tmp_path / "none")).exit_code == 2


@pytest.mark.parametrize(
    ("address", "code"),
    [("http://127.0.0.1:9", 2), ("ray://head:10001", 1), ("10.8.0.11:6379", 1)],
)
def test_what_does_not(address: str, code: int, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x")
    assert ask_ray(address, str(token)).exit_code == code
