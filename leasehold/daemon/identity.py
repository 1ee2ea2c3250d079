"""The identity provider, from the configuration."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from api.auth.identity import ProviderSettings, parse_grant
from leasehold.config.secret_files import read_secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.auth.oidc import Provider
    from leasehold.config.settings import ServerConfig


def identity_provider(
    config: ServerConfig, *, now: Callable[[], float], monotonic: Callable[[], float]
) -> Provider | None:
    """Return the verifier of an identity provider's tokens; None if not configured."""
    oidc = config.oidc
    if oidc.issuer is None or config.server.no_auth:
        return None
    from api.auth.oidc import Provider  # noqa: PLC0415  most configurations have no provider

    settings = ProviderSettings(
        issuer=oidc.issuer,
        audience=oidc.audience or "",
        grants={group: parse_grant(text) for group, text in oidc.groups.items()},
        jwks_url=oidc.jwks_url or "",
        algorithms=oidc.algorithms,
        subject_claim=oidc.subject_claim,
        subject_prefix=oidc.subject_prefix,
        groups_claim=oidc.groups_claim,
        leeway_s=oidc.leeway_s,
        keep_s=oidc.keep_s,
        client_id=oidc.client_id or "",
        client_secret=_secret(oidc.client_secret_file),
        redirect_url=oidc.redirect_url or "",
        scopes=oidc.scopes,
    )
    verify = None if oidc.ca_file is None else ssl.create_default_context(cafile=oidc.ca_file)
    return Provider(settings, now=now, monotonic=monotonic, verify=verify)


def _secret(file: str | None) -> str:
    return "" if file is None else read_secret(Path(file), "client secret")
