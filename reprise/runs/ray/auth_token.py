"""The token that a Ray cluster asks for: read from its file, and refused."""

from __future__ import annotations

from pathlib import Path

from reprise.core.errors import CannotTell, OperatorError

__all__ = ["TokenError", "TokenRefused", "TokenUnreadable", "read_token", "token_refused"]


class TokenError(OperatorError):
    """The token is the cause: it stays so however long the cluster is waited for."""


class TokenRefused(TokenError):
    """The cluster asks for another token, or for one at all: exit code 1."""


class TokenUnreadable(CannotTell, TokenError):
    """The file of the token cannot be read: exit code 2."""


def read_token(token_file: str | Path | None) -> str | None:
    """The token in the file; None without a file. Raises TokenUnreadable."""
    if not token_file:
        return None
    try:
        return Path(token_file).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise TokenUnreadable("run-token.unreadable", str(token_file), reason=error) from None


def token_refused(address: str, service: str, token: str | None) -> TokenRefused:
    """The error for `service` at `address`, which asks for a token; `token` is the one sent."""
    if token:
        return TokenRefused("run-token.rejected", address, service=service)
    return TokenRefused("run-token.missing", address, service=service)
