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
    """Nobody answered: there is no use in asking for the next file."""


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
        """The file in the cache when this very revision of it is there: no network is used."""
        found = try_to_load_from_cache(
            repo, file, cache_dir=self.cache, revision=revision, repo_type=kind
        )
        return Path(found).resolve() if isinstance(found, str) else None

    def find(
        self, kind: Kind, repo: str, revision: str, file: str, size: int | None, sha256: str | None
    ) -> Remote:
        """Ask for the file before anything is downloaded.

        Raises OperatorError when the server has another file there, CannotTell when it has none
        for us.
        """
        url = hf_hub_url(repo, file, repo_type=kind, revision=revision, endpoint=self.endpoint)
        where = f"{self.endpoint} {repo}@{revision[:12]} {file}"
        if self._unreached is not None:
            raise self._unreached
        try:
            found = get_hf_file_metadata(url, token=self.token, endpoint=self.endpoint)
        except Exception as error:
            told = explain(error, where)
            if isinstance(told, Unreached):
                told = self._unreached = Unreached(
                    told.rule, self.endpoint, f"could not be asked: {_shown(error)}", told.fix
                )
            raise told from None
        etag = found.etag or ""
        if size is not None and found.size is not None and found.size != size:
            raise _other(where, f"expected {size:,} bytes, the server has {found.size:,}")
        if sha256 is not None and _SHA256.fullmatch(etag) and etag != sha256:
            raise _other(where, f"expected sha256 {sha256}, the server has {etag}")
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
        # The listing is asked for again and again for 23 seconds: not where nobody answers at all.
        try:
            self.find("model", repo, revision, "config.json", None, None)
        except Unreached:
            raise
        except OperatorError:
            pass  # the listing says it better
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


def _other(where: str, message: str) -> OperatorError:
    return OperatorError("data-hash.locked-file", where, answer=message)


@contextlib.contextmanager
def retries_told(say: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, what huggingface_hub and download.py tell of retries goes to `say`.

    Without the login of a URL, and none twice within a minute.
    """
    logger = logging.getLogger("huggingface_hub")
    before = list(logger.handlers)
    logger.handlers = [_Told(say)]
    try:
        yield
    finally:
        logger.handlers = before


class _Told(logging.Handler):
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
    """What an error of a download means for the operator (exit code 1 or 2).

    Nothing there, or the disk full: 1. No access, no network, a server that fails or limits: 2.
    """
    if isinstance(error, OperatorError):
        return error
    status = getattr(getattr(error, "response", None), "status_code", None)
    absent = isinstance(error, RepositoryNotFoundError | RemoteEntryNotFoundError) or status == 404
    if status in (401, 403):
        return CannotTell("data-access.access-http", where, status=status)
    if absent:
        return OperatorError("data-missing.server-such-repository", where)
    if status == 429:
        limited = "too many requests (HTTP 429)"
        return CannotTell("data-download", where, limited, f"wait and repeat; {_MIRROR}")
    if isinstance(error, OSError) and error.errno in _LOCAL:
        named = f"{error.filename or where}"
        reason = f"cannot write: {error.strerror}"
        return OperatorError("data-place", named, reason, _SPACE)
    failed = f"the download failed: HTTP {status}" if status else ""
    kind = Unreached if isinstance(error, httpx2.TransportError) else CannotTell
    return kind("data-download", where, failed or f"the download failed: {_shown(error)}", _AGAIN)


_LOCAL = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS)
_ABSENT = "the server has no such repository, revision or file (HTTP 404)"
_CHECK = "check the lock entry and the mirror; a private or gated repository needs HF_TOKEN"
_TOKEN = "set HF_TOKEN to a token that may read it (accept the repository's terms first)"  # noqa: S105
_MIRROR = "or use --mirror URL, HF_ENDPOINT, or --from FILE"
_SPACE = "set DATA_DIR to a writable folder with room"
_AGAIN = f"repeat the command: it goes on where it stopped; {_MIRROR}"
