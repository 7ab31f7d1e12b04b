"""Resolve a reference of a data set or model on the Hugging Face Hub."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

import orjson
from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.files import sha256_file
from reprise.lock.model import Data, Model
from reprise.lock.rewrite import Value

__all__ = ["data_at", "model_at"]

_PUBLIC = "https://huggingface.co"
_INDEX = "model.safetensors.index.json"
_Found = TypeVar("_Found")


class _Hub:
    """One endpoint: HF_ENDPOINT or the public one, with the token of the environment only."""

    def __init__(self) -> None:
        self.endpoint = (os.environ.get("HF_ENDPOINT") or _PUBLIC).rstrip("/")
        self.token: str | Literal[False] = os.environ.get("HF_TOKEN") or False
        self.api = HfApi(endpoint=self.endpoint, token=self.token)

    def fetch(self, kind: str, repo: str, file: str, revision: str | None, folder: str) -> Path:
        """One file of a repository at a revision, put below `folder`."""
        path = hf_hub_download(
            repo,
            file,
            repo_type=kind,
            revision=revision,
            local_dir=folder,
            endpoint=self.endpoint,
            token=self.token,
        )
        return Path(path)

    def ask(self, where: str, repo: str, call: Callable[[], _Found]) -> _Found:
        """The result of `call`; errors of the Hub or the network become an OperatorError."""
        try:
            return call()
        except RemoteEntryNotFoundError:
            raise
        # The library's HTTP errors are those of whichever HTTP library it uses, and a mirror may
        # answer with anything at all (text, a list, JSON without the keys), unchecked by it.
        except Exception as error:
            raise _explained(where, f"{repo} of {self.endpoint}", error) from error


def data_at(name: str, data: Data, to: str | None) -> dict[str, Value]:
    """Revision, size and sha256 of the data file at `to` (else at `want` of the entry).

    Row counts of a changed file are unknown. Raises OperatorError when the file is missing,
    CannotTell when the Hub does not answer.
    """
    ref, where, hub = to or data.want or "main", f"data.{name}", _Hub()
    repo = _repo_of(data, where)
    info = hub.ask(
        where,
        repo,
        lambda: hub.api.dataset_info(repo, revision=ref, files_metadata=True),
    )
    file = next((item for item in info.siblings or [] if item.rfilename == data.file), None)
    if file is None or not info.sha:
        raise OperatorError("hub-missing.no-file", where, repo=repo, ref=ref, file=data.file)
    if file.lfs is not None:
        size, sha256 = file.lfs.size, file.lfs.sha256
    else:
        # The Hub has no SHA-256 of a small file that is stored in git itself.
        with tempfile.TemporaryDirectory(prefix="reprise-hub-") as folder:
            path = hub.ask(
                where,
                repo,
                lambda: hub.fetch("dataset", repo, data.file, info.sha, folder),
            )
            size, sha256 = path.stat().st_size, sha256_file(path)
    values: dict[str, Value] = {"want": ref, "revision": info.sha, "bytes": size, "sha256": sha256}
    if sha256 != data.sha256:
        values |= {"rows": None, "unique_prompts": None}
    return values


def model_at(name: str, model: Model, to: str | None) -> dict[str, Value]:
    """Revision of `to`, the digests of config and weight index, and the index's tensor count.

    A model in one file has no index. Bytes at another revision are unknown. Raises as `data_at`.
    """
    ref, where, hub = to or model.want or "main", f"model.{name}", _Hub()
    repo = _repo_of(model, where)
    revision = hub.ask(where, repo, lambda: hub.api.model_info(repo, revision=ref)).sha
    if not revision:
        raise OperatorError("hub-missing.no-commit", where, repo=repo, ref=ref)
    values: dict[str, Value] = {"want": ref, "revision": revision}
    with tempfile.TemporaryDirectory(prefix="reprise-hub-") as folder:

        def fetched(file: str) -> Path:
            return hub.fetch("model", repo, file, revision, folder)

        try:
            config = hub.ask(where, repo, lambda: fetched("config.json"))
        except RemoteEntryNotFoundError as error:
            raise OperatorError("hub-missing.no-config", where, repo=repo, ref=ref) from error
        values["config_sha256"] = sha256_file(config)
        try:
            index = hub.ask(where, repo, lambda: fetched(_INDEX))
            values |= {"index_sha256": sha256_file(index), "tensors": _tensors(index)}
        except RemoteEntryNotFoundError:
            values |= {"index_sha256": None, "tensors": None}
    if revision != model.revision:
        values["bytes"] = None
    return values


def _repo_of(entry: Data | Model, where: str) -> str:
    """The entry's repository. Raises OperatorError for an entry of one's own files."""
    if entry.repo is None:
        raise OperatorError("hub-missing.own-files", where)
    return entry.repo


def _tensors(index: Path) -> int | None:
    """How many tensors a weight index names; None when it cannot be read as one."""
    try:
        return len(orjson.loads(index.read_bytes())["weight_map"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _explained(where: str, repo: str, error: Exception) -> OperatorError:
    """The finding for an error. The Hub answers 401 for missing repositories as well."""
    said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, RevisionNotFoundError):
        return OperatorError("hub-missing.no-revision", where, repo=repo)
    status = getattr(getattr(error, "response", None), "status_code", None)
    missing = isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError)
    if status == 404:
        return OperatorError("hub-missing.not-found", where, repo=repo, reason=said)
    if missing or status in (401, 403):
        return CannotTell("hub-access.repository", where, repo=repo, status=status)
    return CannotTell("hub-download.no-reference", where, repo=repo, reason=said)
