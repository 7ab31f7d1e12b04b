"""Models from a hub, from ModelScope and from a folder."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from data import hub_server

from reprise.core.errors import CannotTell, OperatorError
from reprise.hub.huggingface import Hub
from reprise.hub.modelscope import ModelScope
from reprise.hub.verified import Verified
from reprise.models.fetch import ModelWanted, copy_model, fetch_model, list_files
from tests.saying import started, until_said

from .weights import INDEX, model

REVISION = "716aa7241bd6d95896be4ebfc761162a9c4d49ef"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def git_id(data: bytes) -> str:
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


class Served(BaseHTTPRequestHandler):
    """Both protocols over one folder: the hub's tree and resolve, ModelScope's files and repo."""

    protocol_version = "HTTP/1.1"
    folder: Path
    asked: list[str]

    def log_message(self, *arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        url = urlparse(self.path)
        self.asked.append(f"{self.command} {self.path}")
        names = sorted(path.name for path in self.folder.iterdir())
        if "/tree/" in url.path:
            self._send(json.dumps([self._hub_entry(name) for name in names]).encode())
        elif url.path.endswith("/repo/files"):
            files = [self._scope_entry(name) for name in names]
            self._send(json.dumps({"Code": 200, "Data": {"Files": files}}).encode())
        elif url.path.endswith("/repo"):
            self._file(parse_qs(url.query)["FilePath"][0])
        elif f"/resolve/{REVISION}/" in url.path and url.path.rsplit("/", 1)[1] in names:
            self._file(url.path.rsplit("/", 1)[1])
        else:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _hub_entry(self, name: str) -> dict[str, Any]:
        data = (self.folder / name).read_bytes()
        entry = {"type": "file", "path": name, "size": len(data), "oid": git_id(data)}
        if name.endswith(".safetensors"):
            entry["lfs"] = {
                "oid": digest(self.folder / name), "size": len(data), "pointerSize": 134,
            }  # fmt: skip
        return entry

    def _scope_entry(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        return {"Path": name, "Size": path.stat().st_size, "Sha256": digest(path), "Type": "blob"}

    def _file(self, name: str) -> None:
        self._send((self.folder / name).read_bytes())

    def _send(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (Served,), {"folder": folder, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HF_ENDPOINT", "MODELSCOPE_ENDPOINT", "MODELSCOPE_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture()
def served(tmp_path: Path) -> Path:
    folder = model(tmp_path / "served")
    (folder / "pytorch_model.bin").write_bytes(b"another format")
    (folder / "picture.png").write_bytes(b"png")
    return folder


def wanted(folder: Path, **changes: str) -> ModelWanted:
    locked = {
        "config_sha256": digest(folder / "config.json"),
        "index_sha256": digest(folder / INDEX),
    }
    return ModelWanted("m", "org/m", REVISION, **(locked | changes))


def get(source: Hub | ModelScope, folder: Path, tmp_path: Path, target: str = "got") -> list[Any]:
    files = list_files(source, wanted(folder))
    store = Verified(tmp_path / "verified.json")
    return fetch_model(files, wanted(folder), tmp_path / target, store)


@pytest.mark.parametrize("kind", [Hub, ModelScope])
def test_whole_models_and_nothing_twice(kind: Any, served: Path, tmp_path: Path) -> None:
    with serving(served) as (endpoint, asked):
        assert get(kind(endpoint), served, tmp_path) == []
        got = {path.name: path.read_bytes() for path in (tmp_path / "got").iterdir()}
        whole = {path.name: path.read_bytes() for path in served.iterdir()}
        unwanted = ("pytorch_model.bin", "picture.png")
        assert got == {name: data for name, data in whole.items() if name not in unwanted}
        asked.clear()
        assert get(kind(endpoint), served, tmp_path) == []
        again = [line for line in asked if line.startswith("GET")]
        assert len(again) == 1, "only the listing is asked for again"


def test_config_and_index_come_first(served: Path, tmp_path: Path) -> None:
    with serving(served) as (endpoint, asked):
        get(Hub(endpoint), served, tmp_path)
    files = [line.rsplit("/", 1)[1] for line in asked if re.match("GET .*/resolve/", line)]
    assert files[:2] == ["config.json", INDEX]


@pytest.mark.parametrize("kind", [Hub, ModelScope])
def test_another_model_is_refused_before_its_weights(
    kind: Any, served: Path, tmp_path: Path
) -> None:
    other = wanted(served, index_sha256="0" * 64)
    with serving(served) as (endpoint, asked):
        with pytest.raises(OperatorError, match="expected sha256 000"):
            files = list_files(kind(endpoint), other)
            fetch_model(files, other, tmp_path / "got", Verified(tmp_path / "v.json"))
        assert not any("safetensors" in line and INDEX not in line for line in asked)
    assert not (tmp_path / "got" / INDEX).exists()


def test_a_broken_shard_is_told_and_the_others_come(served: Path, tmp_path: Path) -> None:
    broken = "model-00002-of-00003.safetensors"
    with serving(served) as (endpoint, _):
        files = list_files(Hub(endpoint), wanted(served))
        data = (served / broken).read_bytes()
        (served / broken).write_bytes(data[:-1] + b"x")
        store = Verified(tmp_path / "v.json")
        (error,) = fetch_model(files, wanted(served), tmp_path / "got", store)
        assert broken in error.where and "the server sent" in error.message
        assert not (tmp_path / "got" / broken).exists()
        (served / broken).write_bytes(data)
        assert fetch_model(files, wanted(served), tmp_path / "got", store) == []
    assert (tmp_path / "got" / broken).read_bytes() == data


def test_files_of_other_bytes_in_the_way_stay(served: Path, tmp_path: Path) -> None:
    target = tmp_path / "got"
    target.mkdir()
    for name, change in (("tokenizer.json", b"[]"), ("model-00001-of-00003.safetensors", None)):
        data = (served / name).read_bytes()
        (target / name).write_bytes(change or data[:-1] + b"x")
    with serving(served) as (endpoint, _):
        errors = get(Hub(endpoint), served, tmp_path)
    assert len(errors) == 2 and all("another file is in place" in str(error) for error in errors)
    assert (target / "tokenizer.json").read_bytes() == b"[]"


def test_from_a_folder(served: Path, tmp_path: Path) -> None:
    copy_model(served, wanted(served), tmp_path / "got")
    assert digest(tmp_path / "got" / INDEX) == digest(served / INDEX)
    with pytest.raises(OperatorError, match="expected sha256"):
        copy_model(served, wanted(served, config_sha256="0" * 64), tmp_path / "other")
    with pytest.raises(CannotTell):
        copy_model(tmp_path, wanted(served), tmp_path / "third")


def test_a_server_without_the_model(served: Path, tmp_path: Path) -> None:
    (served / "config.json").rename(tmp_path / "config.json")
    with (
        serving(served) as (endpoint, _),
        pytest.raises(OperatorError, match=r"config\.json not found"),
    ):
        list_files(Hub(endpoint), ModelWanted("m", "org/m", REVISION))
    with pytest.raises(CannotTell):
        list_files(ModelScope("http://127.0.0.1:9"), ModelWanted("m", "org/m", REVISION))


SHARDS = [f"model-0000{n}-of-00004.safetensors" for n in range(1, 5)]
FETCH = """
import sys; from pathlib import Path
from reprise.hub.download import Remote
from reprise.models.fetch import ModelWanted, fetch_model
from reprise.hub.verified import Verified
url, folder, size, *names = sys.argv[1:]
files = {n: Remote(url + n, n, int(size), '0' * 64) for n in names}
show = lambda count: print(count, flush=True)
wanted = ModelWanted('x', 'x/y', 'main')
fetch_model(files, wanted, Path(folder), Verified(Path(folder + '.seen')), show)
"""


def fetching(
    endpoint: str, folder: Path, size: int
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    url = f"{endpoint}/x/y/resolve/{hub_server.REVISION}/"
    return started([sys.executable, "-c", FETCH, url, folder, size, *SHARDS])


def test_an_interrupt_ends_the_transfers_and_keeps_their_parts(tmp_path: Path) -> None:
    size = 40_000_000
    behaviour = hub_server.Behaviour(files={name: bytes(size) for name in SHARDS}, pause=0.02)
    with (
        hub_server.serving(behaviour) as endpoint,
        fetching(endpoint, tmp_path / "m", size) as process,
    ):
        until_said(process.stdout, b"1048576")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert stderr.rstrip().endswith(b"KeyboardInterrupt")
    left = sorted(path.name for path in (tmp_path / "m").iterdir())
    ends = (".part", ".part.of")
    assert left and all(name.startswith(".") and name.endswith(ends) for name in left)


def test_an_interrupt_is_heard_while_another_command_fetches_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    behaviour = hub_server.Behaviour(files={name: bytes(100) for name in SHARDS})
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(hub_server.serving(behaviour))
        for name in SHARDS:
            part = stack.enter_context((folder / f".{name}.part").open("w"))
            fcntl.flock(part, fcntl.LOCK_EX)
        process = stack.enter_context(fetching(endpoint, folder, 100))
        until_said(process.stdout, b"0\n")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert stderr.rstrip().endswith(b"KeyboardInterrupt")
