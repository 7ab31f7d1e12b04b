"""A local server with Sandbox Fusion's run_code call: it really runs the programs it is given."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextlib.contextmanager
def serving() -> Iterator[tuple[str, list[str]]]:
    """Serve on a free port; yields the URL of the call and the programs that were run."""
    ran: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send_error(405)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            ran.append(asked["code"])
            command = [sys.executable, "-c", asked["code"]]
            done = subprocess.run(
                command, input=asked["stdin"] or "", capture_output=True, text=True, check=False
            )
            told = {
                "status": "Success" if done.returncode == 0 else "Failed",
                "run_result": {
                    "status": "Finished",
                    "return_code": done.returncode,
                    "stdout": done.stdout,
                    "stderr": done.stderr,
                },
            }
            text = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/run_code", ran
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
