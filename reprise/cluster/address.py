"""The address of a cluster's Jobs API, which is easily taken for one of Ray's other addresses."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from reprise.core.errors import OperatorError

__all__ = ["jobs_address"]

_RULE = "ray-address"
_GCS, _CLIENT, _DASHBOARD = 6379, 10001, 8265
_OTHER = {_GCS: "the cluster's own port", _CLIENT: "the port of the Ray client"}


def jobs_address(text: str, on_head: bool = False) -> tuple[str, str | None]:
    """The address as http://HOST:PORT, and a note when it was completed.

    `on_head` says that this machine is the head: a loopback address means another machine
    anywhere else. Raises OperatorError for an address that cannot be the Jobs API's.
    """
    note = None
    if "://" not in text:
        text, note = f"http://{text}", "http:// was put in front"
    scheme, _, rest = text.partition("://")
    if scheme not in ("http", "https"):
        fix = f"write http://HOST:{_DASHBOARD}"
        raise OperatorError(_RULE, text, f"{scheme}:// is not the Jobs API's protocol", fix)
    place = rest.split("/", 1)[0]
    if "@" in place:
        raise OperatorError("ray-address.holds-login-ray", text)
    if place.count(":") > 1 and not place.startswith("["):
        raise OperatorError("ray-address.ipv-address-stands", text, dashboard=_DASHBOARD)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise OperatorError(_RULE, text, str(error), f"write http://HOST:{_DASHBOARD}") from None
    if not host or port is None:
        fix = f"write http://HOST:{_DASHBOARD}"
        raise OperatorError(_RULE, text, "names no host or no port", fix)
    if port in _OTHER:
        raise OperatorError(
            "ray-address.jobs-api-s", text, port=port, other=_OTHER[port], dashboard=_DASHBOARD
        )
    if _is_loopback(host) and not on_head:
        raise OperatorError("ray-address.loopback-address-machine", text)
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}", note


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
