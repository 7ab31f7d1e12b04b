"""Files of the Hugging Face Hub at a locked revision, through huggingface_hub."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import httpx2
from huggingface_hub import (
    HfApi,
    get_hf_file_metadata,
    hf_hub_url,
    try_to_load_from_cache,
)
from huggingface_hub.errors import RemoteEntryNotFoundError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import without_credentials
from reprise.hub.download import Remote, download

__all__ = ["Hub", "Kind", "Unreached", "download_explained", "explain", "retries_told"]

Kind = Literal["dataset", "model"]
Progress = Callable[[int], None]
_DEFAULT = "https://huggingface.co"
_SECONDS = 60.0
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Unreached(CannotTell):
    """The server did not answer: further files are not tried."""


class Hub:
    """One endpoint that speaks the hub's protocol, with the token of the environment only.

    `endpoint` defaults to HF_ENDPOINT, then to the public hub; `cache` to huggingface_hub's own.
    """

    def __init__(self, endpoint: str | None = None, cache: Path | None = None) -> None:
        self.endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or _DEFAULT).rstrip("/")
        self.cache = cache
        self.token: str | Literal[False] = os.environ.get("HF_TOKEN") or False
        self._unreached: Unreached | None = None

    def cached(self, kind: Kind, repo: str, revision: str, file: str) -> Path | None:
        """The file in the cache when it has this revision: uses no network."""
        found = try_to_load_from_cache(
            repo, file, cache_dir=self.cache, revision=revision, repo_type=kind
        )
        return Path(found).resolve() if isinstance(found, str) else None

    def find(
        self, kind: Kind, repo: str, revision: str, file: str, size: int | None, sha256: str | None
    ) -> Remote:
        """Query the file before anything is downloaded.

        Raises OperatorError when the server has another file, CannotTell without access to it.
        """
        url = hf_hub_url(repo, file, repo_type=kind, revision=revision, endpoint=self.endpoint)
        where = f"{self.endpoint} {repo}@{revision[:12]} {file}"
        if self._unreached is not None:
            raise self._unreached
        try:
            found = get_hf_file_metadata(url, token=self.token, endpoint=self.endpoint)
        except Exception as error:
            found_error = explain(error, where)
            if isinstance(found_error, Unreached):
                found_error = self._unreached = Unreached(
                    "hub-download.no-answer", self.endpoint, reason=_shown(error)
                )
            raise found_error from None
        etag = found.etag or ""
        if size is not None and found.size is not None and found.size != size:
            raise OperatorError("data-hash.locked-size", where, locked=size, found=found.size)
        if sha256 is not None and _SHA256.fullmatch(etag) and etag != sha256:
            raise OperatorError("data-hash.locked-digest", where, locked=sha256, found=etag)
        return Remote(url, where, found.size, sha256, headers=self.headers())

    def headers(self) -> dict[str, str]:
        """The headers of a request, with the token when there is one."""
        return dict(build_hf_headers(token=self.token))

    def download(self, remote: Remote, target: Path, progress: Progress | None = None) -> None:
        """Download to `target` (see download.py); errors of the transfer are explained."""
        download_explained(remote, target, progress)

    def files(self, repo: str, revision: str) -> dict[str, Remote]:
        """The files of a model repository at a revision, by their paths.

        Large files come with their SHA-256, small ones with their git blob id.
        Raises OperatorError or CannotTell as `explain` says.
        """
        where = f"{self.endpoint} {repo}@{revision[:12]}"
        # The listing is retried for 23 seconds: skip it when the server does not answer at all.
        try:
            self.find("model", repo, revision, "config.json", None, None)
        except Unreached:
            raise
        except OperatorError:
            pass  # the listing gives the better message
        api = HfApi(endpoint=self.endpoint, token=self.token)
        try:
            tree = list(api.list_repo_tree(repo, revision=revision, recursive=True))
        except Exception as error:
            raise explain(error, where) from None
        found = {}
        for item in tree:
            if isinstance(item, RepoFile):
                url = hf_hub_url(repo, item.path, revision=revision, endpoint=self.endpoint)
                sha256 = item.lfs.sha256 if item.lfs is not None else None
                git_id = None if item.lfs is not None else item.blob_id
                found[item.path] = Remote(
                    url, f"{where} {item.path}", item.size, sha256, git_id, self.headers()
                )
        return found


def download_explained(remote: Remote, target: Path, progress: Progress | None = None) -> None:
    """`download`, its errors explained. Raises OperatorError or CannotTell."""
    try:
        download(remote, target, progress)
    except Exception as error:
        raise explain(error, remote.where) from None


@contextlib.contextmanager
def retries_told(say: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, messages of huggingface_hub and download.py about retries go to `say`.

    Without the login of a URL, and each at most once per minute.
    """
    logger = logging.getLogger("huggingface_hub")
    before = list(logger.handlers)
    logger.handlers = [_Messages(say)]
    try:
        yield
    finally:
        logger.handlers = before


class _Messages(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self._said: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = without_credentials(record.getMessage().replace("\n", " "))
        if time.monotonic() - self._said.get(text, -math.inf) > _SECONDS:
            self._said[text] = time.monotonic()
            self._say(text)


def _shown(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


def explain(error: Exception, where: str) -> OperatorError:
    """The finding for an error of a download (exit code 1 or 2).

    Missing file or full disk: 1. No access, no network, a server that fails or limits: 2.
    """
    if isinstance(error, OperatorError):
        return error
    status = getattr(getattr(error, "response", None), "status_code", None)
    absent = isinstance(error, RepositoryNotFoundError | RemoteEntryNotFoundError) or status == 404
    if status in (401, 403):
        return CannotTell("hub-access.refused", where, status=status)
    if absent:
        return OperatorError("hub-missing.on-server", where)
    if status == 429:
        return CannotTell("hub-download.limited", where)
    if isinstance(error, OSError) and error.errno in _LOCAL:
        named = f"{error.filename or where}"
        return OperatorError("data-place.no-room", named, reason=error.strerror)
    kind = Unreached if isinstance(error, httpx2.TransportError) else CannotTell
    reason = f"HTTP {status}" if status else _shown(error)
    return kind("hub-download.failed", where, reason=reason)


_LOCAL = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS)
