"""The session of a browser: a cookie with its token, and the key of its forms.

The cookie counts on the pages only. So a form of a foreign page can never reach the REST interface
with it. The cookie is the token: a session lasts over restarts of the scheduler, and ends if the
token is revoked.
"""

from __future__ import annotations

import hashlib
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from api.problems import ProblemError

if TYPE_CHECKING:
    from starlette.datastructures import Headers

#: Name of the cookie.
COOKIE: Final = "leasehold_token"
#: How long a browser keeps it; the token may end before.
KEPT_S: Final = 7 * 86400
#: First parts of the paths of pages.
PAGES: Final = frozenset({"", "changes", "cluster", "jobs", "sign-in", "sign-out", "static"})
#: Field of a form, and header of a script, with the form key.
FORM_KEY: Final = "form_key"


def page_of(path: str) -> str | None:
    """Return the first part of a page's path; None for the paths of programs."""
    first = path.split("/", 2)[1] if path.startswith("/") else path
    return first if first in PAGES else None


def secret_in_cookie(headers: Headers) -> str:
    """Return the token of a browser's session; empty without one."""
    try:
        found = SimpleCookie("; ".join(headers.getlist("cookie"))).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


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


def form_key(secret: str) -> str:
    """Return the key that forms of a session must send; no foreign page can know it."""
    return hashlib.sha256(b"leasehold form\0" + secret.encode(errors="replace")).hexdigest()[:32]


def check_same_site(headers: Headers) -> None:
    """Refuse a request that changes something and does not come from a page of this scheduler.

    Raises:
        ProblemError: it comes from another page, or says nothing about its origin.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is None and origin is not None:
        site = "same-origin" if _place(origin) == headers.get("host", "").lower() else "cross-site"
    if site != "same-origin":
        raise ProblemError(
            403,
            "this form was not sent by a page of this scheduler; open the page here and send it "
            "from there",
        )


def _place(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
