"""A local server that speaks as much of the hub's protocol as a download needs, and can fail."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REVISION = "65877096c24ffa7abc4e4fa5edb95cf3413a5674"
_RESOLVE = re.compile(r"/(?:datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_INFO = re.compile(r"/api/(?:datasets|models)/([^/]+/[^/]+)/(revision|tree)/([^/?]+)")


@dataclass
class Behaviour:
    """What the server does: `status` for every request; `cut` ends each body after that many
    bytes (as often as `cuts` says; with `reset` the connection breaks off); `pause` seconds between
    pieces of 64 KiB; `sent` in the place of the file's bytes; `commits` is what branches, tags and
    hashes name (empty: any names REVISION); the files in `large` lie in Git LFS.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)
    large: set[str] = field(default_factory=set)
    status: int | None = None
    get_status: int | None = None
    cut: int | None = None
    cuts: int = 0
    reset: bool = False
    pause: float = 0.0
    ranges: bool = True
    sent: bytes | None = None
    requests: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behaviour: Behaviour

    def log_message(self, *arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._serve(body=False)

    def do_GET(self) -> None:
        self._serve(body=True)

    def _serve(self, body: bool) -> None:
        told = self.behaviour
        told.requests.append(f"{self.command} {self.path} {self.headers.get('Range', '')}".strip())
        told.tokens.append(self.headers.get("Authorization"))
        status = told.status or (told.get_status if body else None)
        if status is not None:
            self._empty(status)
            return
        info = _INFO.match(self.path)
        if info:
            self._info(info[2], info[3])
            return
        found = _RESOLVE.match(self.path)
        if not found or found[3] not in told.files:
            self._empty(404, "EntryNotFound")
            return
        self._file(told.files[found[3]], body)

    def _empty(self, status: int, code: str | None = None) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _info(self, kind: str, ref: str) -> None:
        files, commits = self.behaviour.files, self.behaviour.commits
        commit = commits.get(ref) if commits else REVISION
        if commit is None:
            self._empty(404, "RevisionNotFound")
            return
        if kind == "tree":
            value: object = [
                {"type": "file", "path": n, "size": len(b), "oid": "0" * 40}
                for n, b in files.items()
            ]
        else:
            siblings = [self._sibling(name, data) for name, data in files.items()]
            value = {"id": "x/y", "sha": commit, "siblings": siblings}
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _sibling(self, name: str, data: bytes) -> dict[str, object]:
        """A file as the hub tells of it when asked with `blobs=true`."""
        about: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": "0" * 40}
        if name in self.behaviour.large:
            digest = hashlib.sha256(data).hexdigest()
            about["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 134}
        return about

    def _file(self, data: bytes, body: bool) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        wanted = wanted if self.behaviour.ranges else None
        start = int(wanted[1]) if wanted else 0
        part = data[start:]
        self.send_response(206 if wanted else 200)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("Accept-Ranges", "bytes")
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if body:
            self._body(part if self.behaviour.sent is None else self.behaviour.sent[start:])

    def _body(self, part: bytes) -> None:
        told = self.behaviour
        if told.cut is not None and told.cuts > 0:
            told.cuts -= 1
            part = part[: told.cut]
            self.close_connection = True
            if told.reset:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        for start in range(0, len(part), 65536):
            self.wfile.write(part[start : start + 65536])
            time.sleep(told.pause)


@contextlib.contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """Serve on a free port of the loopback interface; yield the endpoint."""
    handler = type("Handler", (_Handler,), {"behaviour": behaviour})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if behaviour.reset:
        server.shutdown_request = server.close_request
    server.handle_error = lambda *_: None  # a client that was killed is no error
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
