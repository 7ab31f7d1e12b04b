"""Stand-ins for the vendors' images: Debian with their Python, their paths and a tiny package set,
and tiny wheels for what is installed over them."""

from __future__ import annotations

import base64
import http.server
import tarfile
import threading
import urllib.parse
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from reprise.core.files import sha256_file
from tests.images.bed import Engine, push

_LEFT_OUT = ("site-packages", "test", "__pycache__", "idlelib", "tkinter", "turtledemo")
_DOCKERFILE = """
FROM {base}
RUN apt-get update -q && apt-get install -y -q --no-install-recommends \
        libssl3 libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libexpat1 libuuid1 >/dev/null \
    && rm -rf /var/lib/apt/lists/*
ADD python.tar packages.tar /
RUN ldconfig && ln -s python{version} /usr/local/bin/python3 \
    && python3 -m ensurepip && rm -rf /root/.cache
{more}
"""


def tiny_wheel(folder: Path, name: str, version: str, requires: Sequence[str] = ()) -> Path:
    """A wheel that holds one module and says what it asks for."""
    plain = name.replace("-", "_")
    path = folder / f"{plain}-{version}-py3-none-any.whl"
    info = f"{plain}-{version}.dist-info"
    asked = "".join(f"Requires-Dist: {text}\n" for text in requires)
    files = {
        f"{plain}/__init__.py": f"__version__ = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{asked}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(file, (2020, 1, 1, 0, 0, 0)), text)
    return path


def make_standin(
    engine: Engine,
    folder: Path,
    name: str,
    base: str,
    python: tuple[Path, str],
    packages: Sequence[Path],
    more: str = "",
) -> str:
    """Build and push a stand-in for a vendor's image; its name by digest."""
    prefix, version = python
    folder.mkdir()
    with tarfile.open(folder / "python.tar", "w") as tar:
        for place in (f"bin/python{version}", f"lib/python{version}"):
            tar.add(prefix / place, f"usr/local/{place}", filter=_slim)
        for library in sorted((prefix / "lib").glob(f"libpython{version}.so*")):
            tar.add(library, f"usr/local/lib/{library.name}")
    site = f"usr/local/lib/python{version}/site-packages"
    with tarfile.open(folder / "packages.tar", "w") as tar:
        for wheel in packages:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder / wheel.stem)
            for item in sorted((folder / wheel.stem).iterdir()):
                tar.add(item, f"{site}/{item.name}")
    text = _DOCKERFILE.format(base=base, version=version, more=more)
    (folder / "Dockerfile").write_text(text)
    engine.docker("build", "--quiet", "--tag", name, str(folder))
    return push(engine, name)


def _slim(item: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = item.name.split("/")
    if any(part in _LEFT_OUT for part in parts) or any(p.startswith("config-") for p in parts):
        return None
    item.uid = item.gid = 0
    return item


class Index:
    """A package index that asks for a password; `asked` are the paths that were fetched."""

    def __init__(self, wheels: Sequence[Path], login: str) -> None:
        self.wheels = {wheel.name: wheel for wheel in wheels}
        self.login = base64.b64encode(login.encode()).decode()
        self.asked: list[str] = []
        self.refused = 0

    @contextmanager
    def serve(self, address: str) -> Iterator[int]:
        """Serve at `address` on a free port, which is yielded."""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                outer.answer(self)

        server = http.server.ThreadingHTTPServer((address, 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        path = urllib.parse.unquote(request.path)
        if request.headers.get("Authorization") != f"Basic {self.login}":
            self.refused += 1
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="packages"')
            request.end_headers()
            return
        self.asked.append(path)
        name = path.rstrip("/").rpartition("/")[2]
        if name in self.wheels:
            body = self.wheels[name].read_bytes()
        else:
            project = name.replace("-", "_")
            links = [
                f'<a href="/files/{file}#sha256={sha256_file(wheel)}">{file}</a>'
                for file, wheel in self.wheels.items()
                if file.startswith(f"{project}-")
            ]
            body = "\n".join(links).encode()
        request.send_response(200)
        kind = "application/octet-stream" if name in self.wheels else "text/html"
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
