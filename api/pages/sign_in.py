"""Sign in with a token, and sign out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from api.auth.browser import check_same_site, cookie_of
from api.auth.roles import Role
from api.context import context_of
from api.edge.layers import principal_with, stranger_bucket
from api.pages.rendering import render
from api.pages.routing import error_page, read_form
from api.problems import rate_limited
from api.settings import RateLimit

if TYPE_CHECKING:
    from starlette.requests import Request

#: Tries of one address: ten at once, then one every two seconds.
TRIES: Final = RateLimit(per_s=0.5, burst=10)
#: A page of this scheduler, as a relative URL.
_NEXT: Final = re.compile(r"[A-Za-z0-9._~\[\]-]+(/[A-Za-z0-9._~\[\]-]+)*(\?[^\s\\<>\"']*)?")
_USED: Final = (
    "This link was used already, or is older than a minute. `leasehold page` makes another one."
)
_UNKNOWN: Final = "This token is not valid: it is unknown, has expired, or was revoked."


async def show_sign_in(request: Request) -> Response:
    """Show the form; a caller with a session goes on."""
    try:
        principal = getattr(request.state, "principal", None)
        if principal is not None and principal.has(Role.VIEWER):
            return RedirectResponse(_next(request.query_params.get("next", "")), 303)
        query = request.query_params
        return _form(request, query.get("next", ""), code=query.get("code", ""))
    except Exception as error:  # noqa: BLE001 - every error has a page
        return error_page(request, error)


async def sign_in(request: Request) -> Response:
    """Begin a session with a token."""
    try:
        return await _sign_in(request)
    except Exception as error:  # noqa: BLE001 - every error has a page
        return error_page(request, error)


async def _sign_in(request: Request) -> Response:
    check_same_site(request.headers)
    context = context_of(request)
    wait_s = context.buckets.take(f"sign-in {stranger_bucket(request.scope)}", TRIES)
    if wait_s > 0:
        raise rate_limited(wait_s, cause="too many tries to sign in from this address")
    form = await read_form(request)
    code, wanted = form.get("code", ""), form.get("next", "")
    secret = context.codes.take(code) if code else form.get("token", "").strip()
    principal = await principal_with(secret, context)
    if principal is None:
        return _form(request, wanted, problem=_USED if code else _UNKNOWN)
    if not principal.has(Role.VIEWER):
        words = f"The token of '{principal.subject}' has role {principal.role}, which has no pages."
        return _form(request, wanted, problem=f"{words} Use one of a person.")
    return _with_cookie(request, _next(wanted), secret)


async def sign_out(request: Request) -> Response:
    """End the session of this browser; its token stays valid."""
    try:
        check_same_site(request.headers)
        return _with_cookie(request, "./sign-in", "")
    except Exception as error:  # noqa: BLE001 - every error has a page
        return error_page(request, error)


def _form(request: Request, wanted: str, *, code: str = "", problem: str = "") -> Response:
    return render(
        request,
        "sign_in.html",
        status=401 if problem else 200,
        next=wanted[:2000],
        code=code[:100],
        problem=problem,
    )


def _with_cookie(request: Request, target: str, secret: str) -> Response:
    answer = RedirectResponse(target, 303)
    answer.headers["set-cookie"] = cookie_of(secret, secure=request.url.scheme == "https")
    return answer


def _next(wanted: str) -> str:
    """Return the page to go on with, relative to this one; the first one if it is no page here."""
    is_page = len(wanted) <= 2000 and _NEXT.fullmatch(wanted) and ".." not in unquote(wanted)
    return f"./{wanted}" if is_page else "./"


ROUTES: Final = (
    Route("/sign-in", show_sign_in, methods=["GET"]),
    Route("/sign-in", sign_in, methods=["POST"]),
    Route("/sign-out", sign_out, methods=["POST"]),
)
