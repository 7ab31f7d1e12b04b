"""Secrets in texts, replaced: nothing that is shown or packed may carry one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from reprise.core.findings import without_credentials

__all__ = ["MASK", "Masker", "without_secrets"]

MASK = "***"

# A name that ends in one of these, then its value: KEY=value, "key": "value", key: value, --key v.
_NAMED = re.compile(
    r"(?P<name>(?:[\w.-]*[_.-])?(?:api[_-]?key|access[_-]?key|secret(?:[_-]?key)?|auth[_-]?token|"
    r"access[_-]?token|token|passwd|password|passphrase|credential|private[_-]?key))"
    r"(?P<between>[\"']?\s*(?:=|:|\s)\s*[\"']?)"
    r"(?P<value>[^\s\"',;{}\[\]()\\]{6,})",
    re.IGNORECASE,
)
_NOT_SECRET = re.compile(
    r"^(?:None|null|true|false|\*+|\d{1,7}|<[^>]*>|\$\{?\w+\}?)$", re.IGNORECASE
)
_TOKEN_WORDS = re.compile(
    # "token" is also what models count: only a value that looks like a secret is one there.
    r"^(?=.*\d)(?=.*[A-Za-z])[\w\-+/.=]{12,}$"
)
# Behind an escaped line end of JSON no word begins: "\\nhf_...".
_SHAPES = re.compile(
    r"(?:\b|(?<=\\n))(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|"
    r"github_pat_\w{30,}|glpat-[\w-]{15,}|AKIA[0-9A-Z]{16}|xox[abpr]-[\w-]{10,}|"
    r"wandb_v1_\w{20,}|local-[0-9a-f]{16,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,})"
)
_BEARER = re.compile(
    r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token)\s+)[^\s\"',]+"
)
_COOKIE = re.compile(r"(?i)\b((?:set-)?cookie:\s*)[^\r\n]+")
_QUERY = re.compile(
    r"(?i)([?&](?:x-amz-(?:signature|credential|security-token)|signature|sig|token|key|"
    r"access_token)=)[^&\s\"']+"
)
_PEM = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)


class Masker:
    """Replaces what looks like a secret, and the given values wherever they are."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        # The longest first: one value may begin another.
        known = sorted({value for value in values if len(value) >= 6}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None
        self.count = 0

    def mask(self, text: str) -> str:
        """`text` without secrets; `count` grows by how many were replaced."""
        if self._known is not None:
            text, number = self._known.subn(MASK, text)
            self.count += number
        for pattern in (_PEM, _SHAPES):
            text, number = pattern.subn(MASK, text)
            self.count += number
        for pattern in (_BEARER, _COOKIE, _QUERY):
            text, number = pattern.subn(rf"\g<1>{MASK}", text)
            self.count += number
        text = _NAMED.sub(self._named, text)
        return without_credentials(text)

    def _named(self, match: re.Match[str]) -> str:
        value = match["value"]
        between = match["between"]
        spaced = not ("=" in between or ":" in between)
        if _NOT_SECRET.match(value) or value.startswith(MASK):
            return match.group(0)
        if ("token" in match["name"].lower() or spaced) and not _TOKEN_WORDS.match(value):
            return match.group(0)
        self.count += 1
        return f"{match['name']}{between}{MASK}"


def without_secrets(text: str) -> str:
    """`text` with everything that looks like a secret replaced by stars."""
    return Masker().mask(text)
