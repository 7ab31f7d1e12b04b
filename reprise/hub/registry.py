"""Resolve a tag in a container registry through the OCI distribution API.

Docker Hub, a site's mirror and a registry on this machine speak the same protocol: a manifest is
requested by tag, an answer 401 names the place to get a token, and the digest is that of the bytes.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import orjson

from reprise.core.errors import CannotTell, OperatorError

__all__ = ["Reference", "Resolved", "layers_digest", "resolve_tag"]

_HUB = "registry-1.docker.io"
_INDEX = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFEST = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_LOOPBACK = re.compile(r"^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$")


@dataclass(frozen=True, slots=True)
class Reference:
    """A repository in a registry: the host to connect to, and the name there."""

    host: str
    name: str

    @classmethod
    def parse(cls, repository: str) -> Reference:
        """`verlai/verl` is on Docker Hub; a first part with a dot or port is a host."""
        first, slash, rest = repository.partition("/")
        if slash and ("." in first or ":" in first or first == "localhost"):
            return cls(_HUB if first == "docker.io" else first, rest)
        return cls(_HUB, repository if slash else f"library/{repository}")

    @property
    def local(self) -> bool:
        """Whether the registry runs on this machine: plain HTTP then, and no proxy."""
        return _LOOPBACK.match(self.host) is not None

    @property
    def url(self) -> str:
        """The root of the API for this repository. REPRISE_INSECURE_REGISTRY lists HTTP hosts."""
        plain = os.environ.get("REPRISE_INSECURE_REGISTRY", "").split()
        scheme = "http" if self.local or self.host in plain else "https"
        return f"{scheme}://{self.host}/v2/{self.name}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """A resolved tag: its digest, and the image id of one platform.

    `layers_sha256` is `layers_digest` of the image's unpacked layers, None where they are unknown.
    """

    digest: str
    image_id: str
    platform: str
    layers_sha256: str | None = None


def layers_digest(layers: Sequence[str]) -> str:
    """One digest (sha256:…) of the digests of unpacked layers, in their order."""
    return f"sha256:{hashlib.sha256(chr(10).join(layers).encode()).hexdigest()}"


def resolve_tag(repository: str, tag: str, platform: str) -> Resolved:
    """The current digest of `repository:tag`, and the id of its image for `platform`.

    Raises OperatorError when the tag or the platform does not exist or the registry's answer does
    not have the digest it claims, CannotTell when the registry does not answer.
    """
    reference = Reference.parse(repository)
    where = f"{repository}:{tag}"
    try:
        with httpx2.Client(timeout=30, trust_env=not reference.local) as client:
            session = _Session(client, reference, where)
            return session.resolve(tag, platform)
    except httpx2.HTTPError as error:
        reason = error or type(error).__name__
        raise CannotTell("registry.no-answer", where, host=reference.host, reason=reason) from error


class _Session:
    """The requests about one repository."""

    def __init__(self, client: httpx2.Client, reference: Reference, where: str) -> None:
        self._client = client
        self._reference = reference
        self._where = where
        self._headers: dict[str, str] = {}

    def resolve(self, tag: str, platform: str) -> Resolved:
        kind, digest, body = self._manifest(tag)
        manifest = body
        if kind in _INDEX or "manifests" in body:
            manifest = self._of_platform(body, platform)
        image_id = str(manifest.get("config", {}).get("digest", ""))
        if not image_id.startswith("sha256:"):
            raise OperatorError("registry.not-an-image", self._where, digest=digest, kind=kind)
        about = self._json(self._get(f"blobs/{image_id}", {}))
        if manifest is body:
            self._check_platform(about, platform)
        layers = (about.get("rootfs") or {}).get("diff_ids")
        found = layers_digest(layers) if isinstance(layers, list) and layers else None
        return Resolved(digest, image_id, platform, found)

    def _manifest(self, name: str) -> tuple[str, str, dict[str, Any]]:
        accept = ", ".join((*_INDEX, *_MANIFEST))
        answer = self._get(f"manifests/{name}", {"Accept": accept})
        digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
        claimed = answer.headers.get("Docker-Content-Digest", digest)
        if claimed != digest or (name.startswith("sha256:") and name != digest):
            raise OperatorError(
                "registry-digest.differs", self._where, claimed=claimed, digest=digest
            )
        kind = answer.headers.get("Content-Type", "").partition(";")[0]
        return kind, digest, self._json(answer)

    def _json(self, answer: httpx2.Response) -> dict[str, Any]:
        try:
            body = orjson.loads(answer.content)
        except orjson.JSONDecodeError:
            body = None
        if not isinstance(body, dict):
            raise CannotTell("registry.not-json", self._where, host=self._reference.host)
        return body

    def _of_platform(self, index: Mapping[str, Any], platform: str) -> dict[str, Any]:
        """The manifest of one platform in a list of several."""
        offered: dict[str, str] = {}
        for item in index.get("manifests", []):
            about = item.get("platform", {})
            parts = [about.get("os", ""), about.get("architecture", ""), about.get("variant", "")]
            offered["/".join(part for part in parts if part)] = str(item.get("digest", ""))
        if platform not in offered:
            names = ", ".join(sorted(name for name in offered if "unknown" not in name))
            raise OperatorError(
                "image-platform.missing", self._where, platform=platform, offered=names
            )
        return self._manifest(offered[platform])[2]

    def _check_platform(self, about: Mapping[str, Any], platform: str) -> None:
        found = f"{about.get('os', '')}/{about.get('architecture', '')}"
        if found != "/".join(platform.split("/")[:2]):
            raise OperatorError(
                "image-platform.differs", self._where, found=found, platform=platform
            )

    def _get(self, path: str, headers: Mapping[str, str]) -> httpx2.Response:
        url = f"{self._reference.url}/{path}"
        for attempt in range(2):
            answer = self._client.get(
                url, headers={**headers, **self._headers}, follow_redirects=True
            )
            if answer.status_code == 401 and attempt == 0:
                self._authenticate(answer.headers.get("WWW-Authenticate", ""))
                continue
            break
        if answer.status_code == 404:
            raise OperatorError(
                "image-missing.on-registry",
                self._where,
                host=self._reference.host,
                name=self._reference.name,
                path=path,
            )
        if answer.status_code in (401, 403):
            raise CannotTell(
                "registry.refused",
                self._where,
                host=self._reference.host,
                status=answer.status_code,
            )
        answer.raise_for_status()
        return answer

    def _authenticate(self, challenge: str) -> None:
        """Answer a registry's challenge, with the engine's stored login where there is one."""
        kind, _, rest = challenge.partition(" ")
        login = _stored_login(self._reference.host)
        basic = {"Authorization": f"Basic {login}"} if login else {}
        if kind.lower() == "basic":
            self._headers = basic
            return
        fields = dict(_CHALLENGE.findall(rest))
        realm = fields.pop("realm", "")
        if kind.lower() != "bearer" or not realm.startswith(("https://", "http://")):
            return
        fields.setdefault("scope", f"repository:{self._reference.name}:pull")
        answer = self._client.get(realm, params=fields, headers=basic)
        answer.raise_for_status()
        body = self._json(answer)
        token = str(body.get("token") or body.get("access_token") or "")
        self._headers = {"Authorization": f"Bearer {token}"}


def _stored_login(host: str) -> str:
    """The login that `docker login` stored for `host` (base64 of user:password), or ''."""
    folder = Path(os.environ.get("DOCKER_CONFIG", Path.home() / ".docker"))
    try:
        auths = orjson.loads((folder / "config.json").read_bytes()).get("auths", {})
    except (OSError, orjson.JSONDecodeError, AttributeError):
        return ""
    names = (host, f"https://{host}", "https://index.docker.io/v1/" if host == _HUB else host)
    for name in names:
        login = auths.get(name, {}).get("auth", "") if isinstance(auths, dict) else ""
        try:
            base64.b64decode(login, validate=True)
        except ValueError:
            continue
        if login:
            return str(login)
    return ""
