"""Real git servers and repositories for the tests: git daemon, smart HTTP, file://."""

from __future__ import annotations

import contextlib
import http.server
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from reprise.lock.model import Submodule, Tree

IDENTITY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
}


def run_git(folder: Path, *args: str) -> str:
    env = os.environ | IDENTITY
    command = ["git", "-c", "protocol.file.allow=always", *args]
    return subprocess.run(
        command, cwd=folder, env=env, check=True, capture_output=True, text=True
    ).stdout.strip()


class Upstream:
    """A bare repository with a work tree beside it that pushes into it."""

    def __init__(self, base: Path, name: str = "tool") -> None:
        self.bare = base / "srv" / f"{name}.git"
        self.work = base / "author" / name
        self.bare.mkdir(parents=True)
        self.work.mkdir(parents=True)
        run_git(self.bare, "init", "-q", "--bare", "-b", "main", ".")
        run_git(self.work, "init", "-q", "-b", "main", ".")
        run_git(self.work, "remote", "add", "origin", str(self.bare))
        (self.work / "tool").mkdir()
        (self.work / "tool" / "__init__.py").write_text("VALUE = 0\n")
        (self.work / ".gitignore").write_text("*.log\n")

    def commit(self, value: int) -> str:
        (self.work / "tool" / "__init__.py").write_text(f"VALUE = {value}\n")
        (self.work / f"file{value}.txt").write_text(f"{value}\n" * 100)
        run_git(self.work, "add", "-A")
        run_git(self.work, "commit", "-qm", f"value {value}")
        run_git(self.work, "push", "-qf", "origin", "HEAD:main")
        return run_git(self.work, "rev-parse", "HEAD")

    def big(self, size: int) -> str:
        (self.work / "big.bin").write_bytes(os.urandom(size))
        return self.commit(99)

    def tree(self, commit: str, url: str | None = None, **more: object) -> Tree:
        values = {
            "machines": ("h20",),
            "url": url or f"file://{self.bare}",
            "path": "third_party/tool",
            "commit": commit,
            "tree": run_git(self.work, "rev-parse", f"{commit}^{{tree}}"),
            "import_root": ".",
            "import_package": "tool",
        }
        return Tree.model_validate(values | more)

    def submodule(self, path: str, other: Upstream, commit: str, fetch: bool) -> Submodule:
        run_git(self.work, "submodule", "add", "-q", str(other.bare), path)
        run_git(self.work / path, "checkout", "-q", commit)
        tree = run_git(other.work, "rev-parse", f"{commit}^{{tree}}")
        return Submodule(url=f"file://{other.bare}", commit=commit, tree=tree, fetch=fetch)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def git_daemon(base: Path, address: str = "127.0.0.1") -> Iterator[str]:
    port = free_port()
    command = ["git", "daemon", "--export-all", f"--base-path={base}", "--reuseaddr"]
    command += [f"--listen={address}", f"--port={port}", str(base)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, address)
        yield f"git://{address}:{port}/"
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, address: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"nothing listens on {port}")


class _Handler(http.server.BaseHTTPRequestHandler):
    """git http-backend behind HTTP; `speaks_v2` and `cut_after` shape its manners."""

    base: Path
    speaks_v2: bool
    cuts: list[int]
    bytes_out: list[int]

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length")
        if length is None:
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
        else:
            body = self.rfile.read(int(length))
        self._serve(body)

    def _serve(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        env = os.environ | {
            "GIT_PROJECT_ROOT": str(self.base),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        if self.speaks_v2:
            env["GIT_PROTOCOL"] = self.headers.get("Git-Protocol", "")
        done = subprocess.run(
            ["git", "http-backend"], check=False, input=body, env=env, capture_output=True
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        status = int(lines.pop("Status", "200").split()[0])
        self.send_response(status)
        for key, value in lines.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.cuts and len(content) > self.cuts[0]:
            content = content[: self.cuts.pop(0)]
            self.close_connection = True
        self.bytes_out[0] += len(content)
        self.wfile.write(content)


@contextlib.contextmanager
def smart_http(
    base: Path, speaks_v2: bool = True, cuts: list[int] | None = None
) -> Iterator[tuple[str, list[int]]]:
    """Serve `base`; yields the URL and a one-element list that counts the bytes sent.

    Without protocol version 2 the server refuses commits that no name stands at. Each element of
    `cuts` breaks one answer that is longer than it after so many bytes.
    """
    sent = [0]
    kind = type(
        "Handler",
        (_Handler,),
        {"base": base, "speaks_v2": speaks_v2, "cuts": cuts or [], "bytes_out": sent},
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", sent
    finally:
        server.shutdown()
        server.server_close()
