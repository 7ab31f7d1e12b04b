"""A Debian mirror that keeps what it was asked for, and when frozen serves only that: the snapshot
of one date, with Debian's own signatures."""

from __future__ import annotations

import http.server
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HELPER = "/usr/lib/apt/apt-helper"


def own_mirror() -> str:
    """Where this machine's apt takes Debian from."""
    command = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return next(line for line in done.stdout.splitlines() if "security" not in line)


class Mirror:
    """`folder` holds the files by their paths; `asked` are the paths that were sent."""

    def __init__(self, folder: Path, upstream: str) -> None:
        self.folder = folder
        self.upstream = upstream
        self.frozen = False
        self.asked: list[str] = []
        self._fetching = threading.Lock()

    def file(self, path: str) -> Path | None:
        """The file at `path`, fetched by apt's own means unless it is held or the mirror frozen."""
        held = self.folder / path.lstrip("/")
        if ".." in held.parts or not held.is_relative_to(self.folder):
            return None
        with self._fetching:
            if not held.is_file() and not self.frozen:
                held.parent.mkdir(parents=True, exist_ok=True)
                part = self.folder / "part"
                command = [HELPER, "download-file", f"{self.upstream}{path}", str(part)]
                if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                    part.rename(held)
        return held if held.is_file() else None

    @contextmanager
    def serve(self, address: str) -> Iterator[str]:
        """Serve at `address` on a free port; the address for a line of sources."""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                found = outer.file(self.path)
                self.send_response(404 if found is None else 200)
                self.send_header("Content-Length", str(found.stat().st_size if found else 0))
                self.end_headers()
                if found is not None:
                    outer.asked.append(self.path)
                    with found.open("rb") as file:
                        shutil.copyfileobj(file, self.wfile)

        server = http.server.ThreadingHTTPServer((address, 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://{address}:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
