"""Settings of an identity provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from api.auth.roles import Role
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Algorithms that may be listed: all sign with a private key.
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Permissions of a group's members.

    Attributes:
        role: which includes those above it.
        projects: projects that they are confined to; empty for all.
    """

    role: Role
    projects: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """The operator's settings for tokens of an identity provider.

    Attributes:
        issuer: required issuer of tokens, compared exactly.
        audience: required audience of tokens.
        grants: group -> permissions of its members.
        jwks_url: URL of the keys; empty: from the issuer's discovery document.
        algorithms: of ``ALGORITHMS``.
        subject_claim: claim that names the person.
        subject_prefix: prefix that separates the provider's names from local ones.
        groups_claim: claim with the groups; dots lead into objects.
        leeway_s: allowed difference of clocks.
        keep_s: time after which the keys are fetched again.
        client_id: by which the provider knows the page, which signs people in; empty: it does not.
        client_secret: of that client; empty for a public one.
        redirect_url: address to which the provider sends people back, as registered there.
        scopes: what the page asks for.
        stale_s: time for which old keys are valid if they cannot be fetched.
        refetch_s: least time between two fetches for unknown keys.
    """

    issuer: str
    audience: str
    grants: Mapping[str, Grant]
    jwks_url: str = ""
    algorithms: tuple[str, ...] = ALGORITHMS
    subject_claim: str = "sub"
    subject_prefix: str = "oidc-"
    groups_claim: str = "groups"
    leeway_s: float = 60.0
    keep_s: float = 3600.0
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    redirect_url: str = ""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    stale_s: float = 86400.0
    refetch_s: float = 30.0


def parse_grant(text: str) -> Grant:
    """Return the grant of ``ROLE`` or ``ROLE:PROJECT,PROJECT``.

    Raises:
        InputError: it has another form, or the role cannot be given or confined.
    """
    word, _, rest = text.partition(":")
    projects = frozenset(part.strip() for part in rest.split(",") if part.strip())
    given = (Role.VIEWER, Role.USER, Role.OPERATOR, Role.ADMIN, Role.METRICS)
    role = next((role for role in given if role.value == word.strip()), None)
    if role is None:
        raise InputError(f"'{text}' gives no role; one of {', '.join(given)} may be given")
    if ":" in text and (role not in {Role.VIEWER, Role.USER} or not projects):
        raise InputError(
            f"'{text}' cannot be: viewer and user are confined, as in user:vision,nlp; the others "
            "concern all projects"
        )
    return Grant(role=role, projects=projects)


def is_safe_url(url: str) -> bool:
    """Return whether a URL is authentic: uses TLS, or is on this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    local = parts.hostname in {"localhost", "127.0.0.1", "::1"}
    return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and local))
