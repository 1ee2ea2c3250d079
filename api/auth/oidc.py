"""Verify tokens of an identity provider (OpenID Connect), and map them to permissions.

A token is a JWT that the provider has signed. The provider's keys are fetched, within bounds, and
cached. They are fetched again if a token names an unknown key, but rarely, since any caller can
send such tokens. Only signatures by a private key are accepted, by algorithms that the operator
lists.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import math
import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import quote, urlencode

import httpx
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, RSAKey

from api.auth.code_flow import SHOWN, SignInError
from api.auth.identity import Grant, is_safe_url
from api.auth.roles import Principal, Role, TokenFault
from api.outgoing import no_cookies

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from api.auth.code_flow import BegunSignIn
    from api.auth.identity import ProviderSettings

#: Longest token that is examined.
LONGEST: Final = 8192
#: Largest document that is fetched, and most keys in one.
MOST_BYTES: Final = 256 * 1024
MOST_KEYS: Final = 100
#: Accepted sizes of RSA keys in bits: smaller ones are weak, larger ones cost too much.
LEAST_BITS, MOST_BITS = 2048, 8192
#: Groups of one token that are examined.
MOST_GROUPS: Final = 1000
#: Tokens that are cached, and for how long without another signature check.
_REMEMBERED: Final = 10_000
_REMEMBER_S: Final = 60.0
#: Pause before a retry if there are no keys.
_NO_KEYS_AGAIN_S: Final = 5.0
_TIMES: Final = httpx.Timeout(5.0)
#: Errors of a request to the provider.
_FETCHING: Final = (
    httpx.HTTPError,
    httpx.InvalidURL,
    ValueError,
    RecursionError,
    TimeoutError,
)
#: Codes that are exchanged at once; keys need connections, too.
_MOST_EXCHANGES: Final = 10
#: Longest code that is exchanged.
_LONGEST_CODE: Final = 4096
#: Kinds of JWT that identify a person; logout tokens and similar ones do not.
_KINDS: Final = {"", "jwt", "at+jwt", "application/at+jwt"}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")

_log = logging.getLogger("leasehold.api")


class Provider:
    """Verifies the tokens of an identity provider.

    Args:
        settings: of the provider; also an attribute.
        now: seconds since the Unix epoch.
        monotonic: seconds on a clock that never runs backwards.
        verify: checks the provider's certificate; None for the usual authorities.
        transport: for tests; a real one by default.
    """

    def __init__(
        self,
        settings: ProviderSettings,
        *,
        now: Callable[[], float],
        monotonic: Callable[[], float],
        verify: ssl.SSLContext | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.settings, self._now, self._monotonic = settings, now, monotonic
        self._client = httpx.AsyncClient(
            timeout=_TIMES,
            verify=True if verify is None else verify,
            transport=transport,
            follow_redirects=False,
            trust_env=False,
            cookies=no_cookies(),
        )
        self._fetching = asyncio.Lock()
        #: key id -> keys of that id; those without one under an empty id.
        self._keys: dict[str, list[RSAKey | ECKey]] = {}
        self._fetched_at = self._tried_at = -math.inf
        #: the discovery document, and until when it is kept.
        self._document: tuple[dict[str, Any], float] = ({}, -math.inf)
        self._describing, self._exchanging = asyncio.Lock(), asyncio.Semaphore(_MOST_EXCHANGES)
        self._describe_again_at, self._away = -math.inf, ""
        #: digest of a token -> (its principal, time until which it needs no check).
        self._known: OrderedDict[str, tuple[Principal, float]] = OrderedDict()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def principal(self, secret: str) -> Principal | TokenFault:
        """Return the principal of a token, or the reason of its refusal."""
        if len(secret) > LONGEST:
            return TokenFault(f"it is longer than {LONGEST} characters")
        digest = hashlib.sha256(secret.encode(errors="replace")).hexdigest()
        known = self._known.get(digest)
        if known is not None and self._monotonic() < known[1] and self._lives(known[0]):
            return known[0]
        try:
            found = await self._verified(secret)
        except _RefusedError as error:
            return TokenFault(str(error), away=error.away)
        self._known[digest] = found, self._monotonic() + _REMEMBER_S
        self._known.move_to_end(digest)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return found

    def _lives(self, principal: Principal) -> bool:
        return (principal.expires_s or 0.0) + self.settings.leeway_s > self._now()

    async def _verified(self, secret: str) -> Principal:
        header = _header(secret)
        algorithm, key_id = header.get("alg"), header.get("kid", "")
        if algorithm not in self.settings.algorithms:
            _refuse("it is signed by an algorithm that is not taken here")
        if not isinstance(key_id, str) or str(header.get("typ", "")).lower() not in _KINDS:
            _refuse("its header is not that of a token of a person")
        for key in await self._candidates(key_id):
            if key.get("alg") not in {None, algorithm} or key.get("use") not in {None, "sig"}:
                continue
            try:
                claims = jwt.decode(secret, key, algorithms=[str(algorithm)]).claims
            except (JoseError, ValueError, TypeError, RecursionError):
                continue
            return self._person(claims)
        raise _RefusedError("its signature is not the provider's")

    # -- claims -----------------------------------------------------------------------------------

    def _person(self, claims: Mapping[str, Any]) -> Principal:
        settings = self.settings
        if claims.get("iss") != settings.issuer:
            _refuse("it is of another issuer")
        audiences = _audiences(claims)
        # The page's tokens are ID tokens, which are made for its client, and for no other's use.
        own = settings.client_id
        is_own = own in audiences and claims.get("azp", own) == own
        if settings.audience not in audiences and not (own and is_own):
            _refuse("it is made for another audience")
        expires_s = self._check_times(claims)
        name = claims.get(settings.subject_claim)
        subject = f"{settings.subject_prefix}{name}"
        if not isinstance(name, str) or not name or not _NAME.fullmatch(subject):
            _refuse(
                f"its claim '{settings.subject_claim}' is no name of letters, digits and ._@+-; "
                "an operator may choose another claim (oidc.subject_claim)"
            )
        if settings.subject_claim == "email" and claims.get("email_verified") is False:
            _refuse("its address is not verified")
        grant = self._grant(_groups(claims, settings.groups_claim))
        whole = f"{settings.issuer}\0{name}"
        return Principal(
            subject=subject,
            role=grant.role,
            projects=grant.projects,
            token_id=f"oidc-{hashlib.sha256(whole.encode()).hexdigest()[:16]}",
            expires_s=expires_s,
            foreign=True,
        )

    def _check_times(self, claims: Mapping[str, Any]) -> float:
        """Return the token's expiry."""
        leeway_s, now_s = self.settings.leeway_s, self._now()
        expires_s = _moment(claims, "exp", missing=-math.inf)
        if expires_s == -math.inf:
            _refuse("it never expires")
        if expires_s + leeway_s <= now_s:
            _refuse("it has expired")
        if any(_moment(claims, name, missing=0.0) - leeway_s > now_s for name in ("nbf", "iat")):
            _refuse("it is not valid yet; compare the clocks")
        return expires_s

    def _grant(self, groups: frozenset[str]) -> Grant:
        """Return the grant of several groups: the highest role, and all its projects."""
        grants = [grant for name, grant in self.settings.grants.items() if name in groups]
        order = (Role.ADMIN, Role.OPERATOR, Role.USER, Role.VIEWER, Role.METRICS)
        for role in order:
            mine = [grant for grant in grants if grant.role is role]
            if mine:
                anywhere = any(not grant.projects for grant in mine)
                projects = frozenset().union(*(grant.projects for grant in mine))
                return Grant(role=role, projects=frozenset() if anywhere else projects)
        raise _RefusedError(
            "its owner is in no group that has a role here; an operator gives roles to groups "
            "(oidc.groups)"
        )

    # -- signing in -------------------------------------------------------------------------------

    async def address(self, begun: BegunSignIn) -> str:
        """Return where to send a person to sign in.

        Raises:
            SignInError: the provider does not answer, or names no such address.
        """
        settings = self.settings
        query = {
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": settings.redirect_url,
            "scope": " ".join(settings.scopes),
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": begun.challenge,
            "code_challenge_method": "S256",
        }
        url = _endpoint(await self._described(), "authorization_endpoint")
        return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"

    async def exchange(self, begun: BegunSignIn, code: str) -> str:
        """Return the ID token for a code of the provider.

        Raises:
            SignInError: the provider refuses, or gives no token of this sign-in.
        """
        if not 0 < len(code) <= _LONGEST_CODE:
            raise SignInError("The identity provider's answer has no code that can be exchanged.")
        settings, document = self.settings, await self._described()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": settings.redirect_url,
            "client_id": settings.client_id,
            "code_verifier": begun.verifier,
        }
        headers = {}
        if settings.client_secret:
            ways = document.get("token_endpoint_auth_methods_supported")
            if not isinstance(ways, list) or "client_secret_basic" in ways:
                headers["Authorization"] = _basic(settings.client_id, settings.client_secret)
            else:
                form["client_secret"] = settings.client_secret
        try:
            async with self._exchanging:
                answer = await self._fetch(_endpoint(document, "token_endpoint"), form, headers)
        except _FETCHING as error:
            _log.warning("the identity provider gives no token: %s", _said(error))
            raise SignInError(
                f"The identity provider gives no token: {_said(error)[:SHOWN]}."
            ) from None
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise SignInError(
                "The identity provider gives no ID token; oidc.scopes must have openid."
            )
        if token.count(".") != 2:
            raise SignInError(
                "The identity provider's ID token is no signed JWT; it must not be encrypted."
            )
        claims = _claims_of(token)
        if claims.get("nonce") != begun.nonce:
            raise SignInError("The identity provider's token is of another sign-in.")
        if settings.client_id not in _audiences(claims):
            raise SignInError("The identity provider's token is of another client.")
        return token

    async def _described(self) -> dict[str, Any]:
        """Return the discovery document, which is kept for a while."""
        async with self._describing:
            document, until = self._document
            if self._monotonic() < until:
                return document
            if self._monotonic() >= self._describe_again_at:
                self._describe_again_at = self._monotonic() + _NO_KEYS_AGAIN_S
                try:
                    return await self._discover()
                except _FETCHING as error:
                    self._away = _said(error)
                    _log.warning("the identity provider does not answer: %s", self._away)
        raise SignInError(
            f"The identity provider does not answer: {self._away[:SHOWN]}. Try again in a while, "
            "or sign in with a token.",
            status=503,
        )

    # -- keys -------------------------------------------------------------------------------------

    async def _candidates(self, key_id: str) -> list[RSAKey | ECKey]:
        """Return the keys that a token may be signed with."""
        if self._age() >= self.settings.keep_s or not self._has(key_id):
            await self._fetch_if_due(key_id)
        if not self._keys or self._age() > self.settings.stale_s:
            _refuse("the provider's keys cannot be fetched at the moment", away=True)
        if not self._has(key_id):
            _refuse("it is signed by a key that the provider does not show")
        return self._all() if not key_id else self._keys[key_id]

    def _has(self, key_id: str) -> bool:
        return key_id in self._keys if key_id else bool(self._keys)

    def _all(self) -> list[RSAKey | ECKey]:
        return [key for keys in self._keys.values() for key in keys]

    def _age(self) -> float:
        return self._monotonic() - self._fetched_at

    async def _fetch_if_due(self, key_id: str) -> None:
        async with self._fetching:
            least_s = self.settings.refetch_s if self._keys else _NO_KEYS_AGAIN_S
            fresh = self._age() < self.settings.keep_s and self._has(key_id)
            if fresh or self._monotonic() - self._tried_at < least_s:
                return
            self._tried_at = self._monotonic()
            try:
                found = _usable_keys(await self._fetch(await self._keys_url()))
            except _FETCHING as error:
                _log.warning("the identity provider's keys cannot be fetched: %s", _said(error))
                return
            self._keys, self._fetched_at = found, self._monotonic()
            self._known.clear()  # a removed key invalidates the tokens that it signed

    async def _keys_url(self) -> str:
        settings = self.settings
        if settings.jwks_url:
            return settings.jwks_url
        found = (await self._discover()).get("jwks_uri")
        if not isinstance(found, str) or not is_safe_url(found):
            raise ValueError(f"{settings.issuer} names no https address of keys")
        return found

    async def _discover(self) -> dict[str, Any]:
        issuer = self.settings.issuer
        url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        document = await self._fetch(url)
        if document.get("issuer") != issuer:
            raise ValueError(f"{url} is of another issuer than {issuer}")
        self._document = document, self._monotonic() + self.settings.keep_s
        return document

    async def _fetch(
        self,
        url: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return a document of the provider; with a form, its answer to that.

        Raises:
            ValueError: the answer is an error, too large, or no JSON object.
            httpx.HTTPError: the provider does not answer.
        """
        body, method = b"", "GET" if form is None else "POST"
        sent = self._client.stream(method, url, data=form, headers=headers)
        async with asyncio.timeout(10.0), sent as answer:
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > MOST_BYTES:
                    raise ValueError(f"{url} is larger than {MOST_BYTES} bytes")
        if answer.status_code != httpx.codes.OK:
            raise ValueError(f"{url} answers {answer.status_code}{_error_in(body)}")
        document = json.loads(body)
        if not isinstance(document, dict):
            raise ValueError(f"{url} is no JSON object")  # noqa: TRY004 - of what came, not of types
        return document


class _RefusedError(Exception):
    """A token is refused, and why."""

    def __init__(self, why: str, *, away: bool = False) -> None:
        super().__init__(why)
        self.away = away


def _refuse(why: str, *, away: bool = False) -> NoReturn:
    raise _RefusedError(why, away=away)


def _header(secret: str) -> dict[str, Any]:
    parts = secret.split(".")
    try:
        head = parts[0] + "=" * (-len(parts[0]) % 4)
        header = json.loads(base64.b64decode(head, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        header = None
    if len(parts) != 3 or not isinstance(header, dict):
        _refuse("it is no signed JWT")
    return header


def _claims_of(secret: str) -> dict[str, Any]:
    """Return the claims of a token without looking at its signature; empty if it is none."""
    try:
        body = secret.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, IndexError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _moment(claims: Mapping[str, Any], name: str, *, missing: float) -> float:
    """Return a time of a token, seconds since the Unix epoch."""
    value = claims.get(name)
    if value is None:
        return missing
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not 0 <= value < 1e11:
        _refuse(f"its claim '{name}' is no time")
    return float(value)


def _groups(claims: Mapping[str, Any], claim: str) -> frozenset[str]:
    found: Any = claims.get(claim)
    if found is None:
        found = claims
        for name in claim.split("."):
            found = found.get(name) if isinstance(found, dict) else None
    listed = [found] if isinstance(found, str) else found
    if not isinstance(listed, list):
        return frozenset()
    return frozenset(name for name in listed[:MOST_GROUPS] if isinstance(name, str))


def _usable_keys(document: dict[str, Any]) -> dict[str, list[RSAKey | ECKey]]:
    """Return the public keys of a document by their ids; others are passed over.

    Raises:
        ValueError: there is no usable key.
    """
    listed = document.get("keys")
    found: dict[str, list[RSAKey | ECKey]] = {}
    for item in listed[:MOST_KEYS] if isinstance(listed, list) else ():
        if not isinstance(item, dict) or item.get("kty") not in {"RSA", "EC"}:
            continue  # with a shared secret any party that knows it could sign
        if item["kty"] == "RSA" and not LEAST_BITS <= len(str(item.get("n"))) * 6 <= MOST_BITS + 64:
            continue
        try:
            key = JWKRegistry.import_key(item)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        if isinstance(key, RSAKey) and not _has_fair_size(key):
            continue
        key_id = item.get("kid", "")
        if isinstance(key, RSAKey | ECKey) and isinstance(key_id, str):
            found.setdefault(key_id, []).append(key)
    if not found:
        raise ValueError("the provider shows no key that can be used")
    return found


def _has_fair_size(key: RSAKey) -> bool:
    public = key.public_key
    return isinstance(public, RSAPublicKey) and LEAST_BITS <= public.key_size <= MOST_BITS


def _audiences(claims: Mapping[str, Any]) -> list[Any]:
    audience = claims.get("aud")
    return audience if isinstance(audience, list) else [audience]


def _error_in(body: bytes) -> str:
    """Return the word of an error that a provider answers, such as `` (invalid_client)``."""
    try:
        error = json.loads(body).get("error")
    except (ValueError, AttributeError, RecursionError):
        return ""
    is_word = isinstance(error, str) and re.fullmatch(r"[A-Za-z0-9_.-]{1,60}", error)
    return f" ({error})" if is_word else ""


def _endpoint(document: dict[str, Any], name: str) -> str:
    url = document.get(name)
    if not isinstance(url, str) or not is_safe_url(url):
        raise SignInError(f"The identity provider names no https address as its {name}.")
    return url


def _basic(client_id: str, secret: str) -> str:
    pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _said(error: Exception) -> str:
    """Return an error in words."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
