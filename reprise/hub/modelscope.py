"""Files of ModelScope: its listing and addresses (it has revisions of its own, not the hub's)."""

from __future__ import annotations

import os
from urllib.parse import quote, urlencode

import httpx2

from reprise.core.errors import CannotTell
from reprise.hub.download import Remote
from reprise.hub.huggingface import explain

__all__ = ["ModelScope"]

_DEFAULT = "https://modelscope.cn"
_SECONDS = 60.0


class ModelScope:
    """One endpoint of ModelScope's HTTP API; MODELSCOPE_ENDPOINT names another.

    The listing gives each file's size and SHA-256 (GET /api/v1/models/REPO/repo/files).
    """

    def __init__(self, endpoint: str | None = None) -> None:
        chosen = endpoint or os.environ.get("MODELSCOPE_ENDPOINT") or _DEFAULT
        self.endpoint = chosen.rstrip("/")
        token = os.environ.get("MODELSCOPE_API_TOKEN")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def files(self, repo: str, revision: str) -> dict[str, Remote]:
        """The files of a model repository by their paths. Raises OperatorError or CannotTell."""
        base = f"{self.endpoint}/api/v1/models/{quote(repo)}/repo"
        query = urlencode({"Revision": revision, "Recursive": "true"})
        where = f"{self.endpoint} {repo}@{revision}"
        try:
            answer = httpx2.get(
                f"{base}/files?{query}",
                headers=self._headers,
                timeout=_SECONDS,
                follow_redirects=True,
            )
            answer.raise_for_status()
            listing = answer.json()["Data"]["Files"]
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise explain(error, where) from None
        except (ValueError, KeyError, TypeError):
            raise CannotTell("hub-download.not-a-listing", where) from None
        found = {}
        for item in listing:
            if item.get("Type") == "tree":
                continue
            path = str(item["Path"])
            url = f"{base}?{urlencode({'Revision': revision, 'FilePath': path})}"
            sha256 = item.get("Sha256") or None
            found[path] = Remote(
                url, f"{where} {path}", int(item["Size"]), sha256, headers=self._headers
            )
        return found
