"""The session of a browser: a cookie with its token, and the key of its forms.

The cookie counts on the pages only. So a form of a foreign page can never reach the REST interface
with it. The cookie is the token: a session lasts over restarts of the scheduler, and ends if the
token is revoked.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from api.problems import ProblemError

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.requests import HTTPConnection

#: Name of the cookie.
COOKIE: Final = "leasehold_token"
#: Name of the cookie of a sign-in at the identity provider, which has not come to its end.
SIGN_IN_COOKIE: Final = "leasehold_sign_in"
#: Cookies of that name that are tried: one for each path.
_MOST_COOKIES: Final = 3
#: Longest token in a cookie; browsers drop larger cookies.
LONGEST: Final = 3800
#: Key in a request's state: the token of its session.
SESSION: Final = "session_secret"
#: How long a browser keeps it; the token may end before.
KEPT_S: Final = 7 * 86400
#: First parts of the paths of pages.
PAGES: Final = frozenset(
    {
        *("admin", "sign-in-provider", "sign-in-done"),
        *("", "changes", "cluster", "events", "fairness", "jobs", "rounds", "sign-in", "sign-out"),
        *("policies", "static", "submit", "usage", "usage-figures", "words"),
    }
)
#: Field of a form with the form key.
FORM_KEY: Final = "form_key"


def page_of(path: str) -> str | None:
    """Return the first part of a page's path; None for the paths of programs."""
    first = path.split("/", 2)[1] if path.startswith("/") else path
    return first if first in PAGES else None


def secrets_in_cookies(headers: Headers) -> list[str]:
    """Return the tokens of a browser's sessions, that of the nearest path first.

    Cookies of other programs may have any form, and are passed over. The parser of the standard
    library takes quadratic time for some of them.
    """
    found = cookies_named(headers, COOKIE)[:_MOST_COOKIES]
    return [secret for secret in found if 0 < len(secret) <= LONGEST]


def cookies_named(headers: Headers, name: str) -> list[str]:
    """Return the values of a cookie, that of the nearest path first."""
    begin = f"{name}="
    parts = (part.strip() for text in headers.getlist("cookie") for part in text.split(";"))
    return [part.removeprefix(begin) for part in parts if part.startswith(begin)]


def cookie_of(secret: str, *, secure: bool) -> str:
    """Return the header that gives a browser its session, or takes it back.

    It names no path: the browser then returns it below the folder of the page that set it. So
    behind a path prefix that a proxy removes, other programs of that host do not get it.

    Args:
        secret: the token; empty: the session ends.
        secure: whether the browser uses TLS.
    """
    rest = f"Max-Age={KEPT_S if secret else 0}; HttpOnly; SameSite=Strict"
    return f"{COOKIE}={secret}; {rest}{'; Secure' if secure else ''}"


def sign_in_cookie(text: str, *, secure: bool, lasts_s: int) -> str:
    """Return the header that gives a browser its sign-in at the identity provider, or takes it.

    The provider leads back from another site, so it cannot be a strict one.
    """
    rest = f"Max-Age={lasts_s if text else 0}; HttpOnly; SameSite=Lax"
    return f"{SIGN_IN_COOKIE}={text}; {rest}{'; Secure' if secure else ''}"


def session_of(request: HTTPConnection) -> str:
    """Return the token of a request's session; empty without one, and if none is required."""
    return str(getattr(request.state, SESSION, ""))


def form_key(secret: str) -> str:
    """Return the key that forms of a session must send; no foreign page can know it."""
    return hashlib.sha256(b"leasehold form\0" + secret.encode(errors="replace")).hexdigest()[:32]


def check_same_site(headers: Headers) -> None:
    """Refuse a request that changes something and does not come from a page of this scheduler.

    Raises:
        ProblemError: it comes from another page, or says nothing about its origin.
    """
    if site_of(headers) != "same-origin":
        raise ProblemError(
            403,
            "this form was not sent by a page of this scheduler; open the page here and send it "
            "from there",
        )


def site_of(headers: Headers) -> str:
    """Return the relation of a request's page to this scheduler, as in ``Sec-Fetch-Site``.

    Browsers leave that header out over plain HTTP. Then it follows from the origin; empty if that
    is missing, too.
    """
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin")
    if site or origin is None:
        return site
    return "same-origin" if _place(origin) == headers.get("host", "").lower() else "cross-site"


def _place(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
