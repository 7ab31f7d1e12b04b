"""The web page of a run: who may read it, what it shows, how it ends."""

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from reprise.flows.serve import PageServer
from reprise.runs.state.folder import RunFolder
from tests.states import change


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path, "rehearsal", {"steps": 6, "visible": True})
    change(folder, attempts=[{"number": 1, "job": "j", "started": 1.0}], state="failed")
    lines = [
        orjson.dumps({"step": n, "data": {"critic/rewards/mean": n / 10, "actor/entropy": 1.0}})
        for n in range(1, 5)
    ]
    folder.metrics_file(1).write_bytes(b"\n".join(lines) + b"\n")
    folder.event("alarm", attempt=1, severity="warning", where="step 3", message="<b>odd</b>")
    return folder


def ask(port: int, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_only_with_the_token_and_only_by_this_hosts_name() -> None:
    asked = []

    def page() -> str:
        asked.append(1)
        return "the page"

    with PageServer(page) as server:
        path = "/" + server.url.split("/", 3)[3]
        assert ask(server.port, path) == (200, "the page")
        assert ask(server.port, path, f"localhost:{server.port}")[0] == 200
        for other in ("/", path[:-2] + "/", path + "x", "/../" + path, "/%00"):
            assert ask(server.port, other)[0] == 404
        assert ask(server.port, path, "attacker.example")[0] == 403
    assert asked == [1]


@contextlib.contextmanager
def serve(run: RunFolder, *words: str) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [sys.executable, "-m", "reprise", "status", run.name, "--serve", *words],
        env={**os.environ, "RUNS_DIR": str(run.path.parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_command_shows_the_run_until_it_is_interrupted(run: RunFolder) -> None:
    with serve(run) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/[\w-]{32}/)", url)
        assert match is not None, url
        status, page = ask(int(match[1]), match[2])
        assert status == 200, page
        assert "4 of 6" in page and "critic/rewards/mean" in page and "The run has ended." in page
        assert "&lt;b&gt;odd&lt;/b&gt;" in page and "<b>odd" not in page
        assert 'http-equiv="refresh"' not in page
        with serve(run, "--port", match[1]) as second:
            out, _ = second.communicate(timeout=60)
        assert second.returncode == 1 and "already in use" in out
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0 and "Traceback" not in err


def test_a_run_that_goes_on_is_loaded_again_and_its_curve_stands_in_the_terminal(
    run: RunFolder,
) -> None:
    from reprise.core.project import find_project
    from reprise.flows.serve import page_of

    change(run, state="running")
    assert '<meta http-equiv="refresh" content="10">' in page_of(find_project(), str(run.path))
    shown = subprocess.run(
        [sys.executable, "-m", "reprise", "status", run.name],
        env={**os.environ, "RUNS_DIR": str(run.path.parents[1]), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert re.search(r"reward +0\.1 \(step 1\) ▁▃▆█ 0\.4 \(step 4\)", shown), shown
