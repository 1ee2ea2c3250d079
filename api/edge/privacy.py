"""Privacy of connections: whether a third party can read a request and its answer."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import Scope

#: Header by which an agent says that it keeps secret variables off its disk.
TAKES: Final = b"x-leasehold-takes"
#: Headers of a proxy; behind an untrusted one the caller's connection is unknown.
_PROXIED: Final = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"via"})


def is_private(scope: Scope) -> bool:
    """Return whether a request and its answer are private in transit.

    They are with TLS, of this server or of a trusted proxy, and on this machine.
    """
    if scope.get("scheme") == "https":
        return True
    if any(name in _PROXIED for name, _ in scope["headers"]):
        return False
    return _is_loopback(_address(scope))


def why_not_private(scope: Scope) -> str:
    """Return why secret variables may not be sent to an agent; empty if they may."""
    if not is_private(scope):
        return (
            f"the agent at {_address(scope) or 'an unknown address'} asks over plain HTTP, which "
            "can be read on the way; serve TLS (server.tls_cert) or trust the proxy that does "
            "(server.trusted_proxies), and give the agent an https:// address"
        )
    takes = (value for name, value in scope["headers"] if name == TAKES)
    if not any(b"secrets" in value for value in takes):
        return "the agent's release knows nothing of it; upgrade the agent"
    return ""


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback
