"""The address of a cluster's Jobs API, which is easily confused with Ray's other addresses."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from reprise.core.errors import OperatorError

__all__ = ["jobs_address"]

_GCS, _CLIENT, _DASHBOARD = 6379, 10001, 8265
_OTHER = {_GCS: "the cluster's own port (GCS)", _CLIENT: "the port of the Ray client"}


def jobs_address(text: str, on_head: bool = False) -> tuple[str, str | None]:
    """The address as http://HOST:PORT, and a note when it was completed.

    `on_head`: this machine is the head, so a loopback address is valid. Raises OperatorError for an
    address that cannot be the Jobs API's.
    """
    note = None
    if "://" not in text:
        text, note = f"http://{text}", "http:// was added"
    scheme, _, rest = text.partition("://")
    if scheme not in ("http", "https"):
        raise OperatorError("ray-address.other-protocol", text, scheme=scheme, dashboard=_DASHBOARD)
    place = rest.split("/", 1)[0]
    if "@" in place:
        raise OperatorError("ray-address.login", text)
    if place.count(":") > 1 and not place.startswith("["):
        raise OperatorError("ray-address.ipv6-brackets", text, dashboard=_DASHBOARD)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise OperatorError(
            "ray-address.not-a-url", text, reason=error, dashboard=_DASHBOARD
        ) from None
    if not host or port is None:
        raise OperatorError("ray-address.incomplete", text, dashboard=_DASHBOARD)
    if port in _OTHER:
        raise OperatorError(
            "ray-address.other-port", text, port=port, other=_OTHER[port], dashboard=_DASHBOARD
        )
    if _is_loopback(host) and not on_head:
        raise OperatorError("ray-address.loopback", text, dashboard=_DASHBOARD)
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}", note


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
