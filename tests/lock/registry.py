"""A real container registry on this machine, with or without a token server, and tiny images."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import os
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import httpx2

from lock.servers import free_port

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Registry:
    def __init__(self, host: str, storage: Path) -> None:
        self.host = host
        self.storage = storage

    def _blob(self, name: str, content: bytes) -> dict[str, object]:
        base = f"http://{self.host}"
        with httpx2.Client(trust_env=False) as client:
            place = client.post(f"{base}/v2/{name}/blobs/uploads/").headers["Location"]
            joint = "&" if "?" in place else "?"
            url = urllib.parse.urljoin(base, place) + f"{joint}digest={digest_of(content)}"
            client.put(url, content=content).raise_for_status()
        return {"digest": digest_of(content), "size": len(content)}

    def _manifest(self, name: str, tag: str, kind: str, body: object) -> str:
        content = json.dumps(body).encode()
        url = f"http://{self.host}/v2/{name}/manifests/{tag}"
        headers = {"Content-Type": kind}
        httpx2.put(url, content=content, headers=headers, trust_env=False).raise_for_status()
        return digest_of(content)

    def push(self, name: str, tag: str, text: str, arch: str = "amd64") -> tuple[str, str]:
        """Push an image that is nothing but its configuration; gives digest and image id."""
        body = {"architecture": arch, "os": "linux", "config": {"Labels": {"text": text}}}
        body["rootfs"] = {"type": "layers", "diff_ids": []}  # type: ignore[assignment]
        config = json.dumps(body).encode()
        kind = "application/vnd.oci.image.config.v1+json"
        about = self._blob(name, config) | {"mediaType": kind}
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": about, "layers": []}
        return self._manifest(name, tag, MANIFEST, manifest), digest_of(config)

    def push_index(self, name: str, tag: str, platforms: dict[str, str]) -> str:
        manifests = []
        for platform, digest in platforms.items():
            system, _, arch = platform.partition("/")
            size = len(self.raw(name, digest))
            about = {"os": system, "architecture": arch}
            manifests.append(
                {"mediaType": MANIFEST, "digest": digest, "size": size, "platform": about}
            )
        body = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
        return self._manifest(name, tag, INDEX, body)

    def raw(self, name: str, reference: str) -> bytes:
        url = f"http://{self.host}/v2/{name}/manifests/{reference}"
        headers = {"Accept": f"{MANIFEST}, {INDEX}"}
        return httpx2.get(url, headers=headers, trust_env=False).content

    def damage(self, digest: str) -> None:
        """Change one byte of a stored blob behind the registry's back."""
        value = digest.removeprefix("sha256:")
        path = self.storage / f"docker/registry/v2/blobs/sha256/{value[:2]}/{value}/data"
        content = bytearray(path.read_bytes())
        content[-2] ^= 1
        path.write_bytes(content)


@contextlib.contextmanager
def registry(folder: Path, auth: str = "") -> Iterator[Registry]:
    """Run docker-registry on a free port of this machine; `auth` is its configuration of it."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    config = folder / "config.yml"
    config.write_text(
        f"version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n"
        f"    rootdirectory: {folder}/data\nhttp:\n  addr: 127.0.0.1:{port}\n{auth}"
    )
    log = (folder / "log").open("wb")
    path = os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    command = ["docker-registry", "serve", str(config)]
    process = subprocess.Popen(command, stdout=log, stderr=log, env=path)
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                httpx2.get(f"http://127.0.0.1:{port}/v2/", trust_env=False)
                break
            said = (folder / "log").read_text
            assert process.poll() is None and time.monotonic() < deadline, said()
            time.sleep(0.05)
        yield Registry(f"127.0.0.1:{port}", folder / "data")
    finally:
        process.terminate()
        process.wait()
        log.close()


def _b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class TokenServer:
    """Signs the tokens that docker-registry asks for, as Docker Hub's token service does."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.key, self.bundle = folder / "key.pem", folder / "cert.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        command += ["-subj", "/CN=tests", "-keyout", str(self.key), "-out", str(self.bundle)]
        subprocess.run(command, check=True, capture_output=True)
        self.asked: list[dict[str, list[str]]] = []

    def token(self, scope: str) -> str:
        der = "".join(self.bundle.read_text(encoding="utf-8").splitlines()[1:-1])
        header = {"typ": "JWT", "alg": "RS256", "x5c": [der]}
        kind, name, actions = scope.split(":")
        now = int(time.time())
        claims = {
            "iss": "tests", "aud": "registry", "sub": "", "iat": now, "nbf": now - 5,
            "exp": now + 300, "jti": "1",
            "access": [{"type": kind, "name": name, "actions": actions.split(",")}],
        }  # fmt: skip
        signed = f"{_b64(json.dumps(header).encode())}.{_b64(json.dumps(claims).encode())}"
        command = ["openssl", "dgst", "-sha256", "-sign", str(self.key)]
        done = subprocess.run(command, input=signed.encode(), check=True, capture_output=True)
        return f"{signed}.{_b64(done.stdout)}"

    @contextlib.contextmanager
    def serve(self) -> Iterator[str]:
        """Serve tokens; yields the registry's `auth` configuration."""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                query = urllib.parse.parse_qs(self.path.partition("?")[2])
                outer.asked.append(query)
                body = json.dumps({"token": outer.token(query["scope"][0])}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield (
                f"auth:\n  token:\n    realm: http://127.0.0.1:{server.server_port}/token\n"
                f"    service: registry\n    issuer: tests\n    rootcertbundle: {self.bundle}\n"
            )
        finally:
            server.shutdown()
            server.server_close()
