"""Where a tree may be fetched from: the operator's mirrors, then the lock's, then its origin."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from reprise.core.errors import OperatorError

__all__ = ["Mirror", "mirrors_from", "urls_for"]

VARIABLE = "REPRISE_MIRROR"
_FORGE = "https://github.com/"


@dataclass(frozen=True, slots=True)
class Mirror:
    """URLs that begin with `base` are fetched from `url` and the rest (git's insteadOf)."""

    base: str
    url: str

    def rewrite(self, url: str) -> str | None:
        """`url` as this mirror serves it, or None when it is not for this mirror."""
        return self.url + url.removeprefix(self.base) if url.startswith(self.base) else None


def mirrors_from(options: Sequence[str]) -> tuple[Mirror, ...]:
    """Mirrors of `--mirror` and then of REPRISE_MIRROR (separated by white space).

    Each is `URL`, which stands for https://github.com/, or `BASE=URL`. Raises OperatorError.
    """
    result: list[Mirror] = []
    for text in (*options, *os.environ.get(VARIABLE, "").split()):
        # The base of BASE=URL is itself a URL: a lone `=` may also stand in a query.
        base, equals, url = text.partition("=")
        if not equals or ("?" in base):
            base, url = _FORGE, text
        if not base or not url or url.startswith("-") or base.startswith("-"):
            fix = f"write --mirror URL (for {_FORGE}) or --mirror BASE=URL"
            raise OperatorError("mirror", text, "is not a mirror", fix)
        result.append(Mirror(base, url if url.endswith("/") or equals else f"{url}/"))
    return tuple(result)


def urls_for(url: str, mirrors: Sequence[Mirror], own: Sequence[str] = ()) -> tuple[str, ...]:
    """The URLs to try, in order and without repeats: mirrors, the entry's `own`, then `url`."""
    rewritten = [mirror.rewrite(url) for mirror in mirrors]
    found = [candidate for candidate in rewritten if candidate is not None]
    return tuple(dict.fromkeys([*found, *own, url]))
