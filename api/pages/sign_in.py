"""Sign in with a token, and sign out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from api.auth.browser import LONGEST, check_same_site, cookie_of
from api.auth.roles import Role, TokenFault
from api.context import context_of
from api.edge.layers import principal_with, stranger_bucket
from api.pages.rendering import render
from api.pages.routing import error_page, read_form
from api.problems import rate_limited
from api.settings import RateLimit

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Scope

#: Wrong tokens of one address: ten at once, then one every two seconds.
TRIES: Final = RateLimit(per_s=0.5, burst=10)
#: A page of this scheduler, as a relative URL.
_NEXT: Final = re.compile(r"[A-Za-z0-9._~\[\]-]+(/[A-Za-z0-9._~\[\]-]+)*(\?[^\s\\<>\"']*)?")
_USED: Final = (
    "This link was used already, or is older than a minute. `leasehold page` makes another one."
)
_UNKNOWN: Final = "This token is not valid: it is unknown, has expired, or was revoked."


async def show_sign_in(request: Request) -> Response:
    """Show the form; a caller with a session goes on, unless a link is for another person."""
    try:
        query, principal = request.query_params, getattr(request.state, "principal", None)
        wanted, code = query.get("next", ""), query.get("code", "")
        if principal is not None and principal.has(Role.VIEWER) and not code:
            return RedirectResponse(_next(wanted), 303)
        return await _form(request, wanted, code=code)
    except Exception as error:  # noqa: BLE001 - every error has a page
        return error_page(request, error)


async def sign_in(request: Request) -> Response:
    """Begin a session with a token, or with a one-time code for one."""
    try:
        return await _sign_in(request)
    except Exception as error:  # noqa: BLE001 - every error has a page
        return error_page(request, error)


async def _sign_in(request: Request) -> Response:
    check_same_site(request.headers)
    context, caller = context_of(request), f"sign-in {stranger_bucket(request.scope)}"
    wait_s = context.buckets.wait_s(caller, TRIES)
    if wait_s > 0:
        raise rate_limited(wait_s, cause="too many wrong tokens from this address")
    form = await read_form(request)
    code, wanted = form.get("code", ""), form.get("next", "")
    secret = context.codes.take(code) if code else form.get("token", "").strip()
    principal = await principal_with(secret, context, request.scope)
    if principal is None:
        context.buckets.take(caller, TRIES)
        problem = _USED if code and not secret else why_refused(request.scope)
    elif not principal.has(Role.VIEWER):
        words = f"The token of '{principal.subject}' has role {principal.role}, which has no pages."
        problem = f"{words} Use a token of a person."
    elif len(secret) > LONGEST:
        problem = f"This token has {len(secret)} characters; browsers keep {LONGEST} at most."
    else:
        return _with_cookie(request, _next(wanted), secret)
    return await _form(request, wanted, problem=problem)


def why_refused(scope: Scope) -> str:
    """Return why a token begins no session."""
    fault = scope["state"].get("token_fault")
    if isinstance(fault, TokenFault):
        return f"The identity provider's token is not taken: {fault.why}."
    return _UNKNOWN


async def sign_out(request: Request) -> Response:
    """End the session of this browser; its token stays valid."""
    try:
        check_same_site(request.headers)
        return _with_cookie(request, "./sign-in", "")
    except Exception as error:  # noqa: BLE001 - every error has a page
        return error_page(request, error)


async def _form(request: Request, wanted: str, *, code: str = "", problem: str = "") -> Response:
    context = context_of(request)
    who = await principal_with(context.codes.token(code), context) if code else None
    # A link that a person opens from a terminal signs in by itself. One in a foreign page does not:
    # it could put the reader into a session of the page's author.
    is_own = request.headers.get("sec-fetch-site") == "none"
    has_session = getattr(request.state, "principal", None) is not None
    return render(
        request,
        "sign_in.html",
        status=401 if problem else 200,
        next=_page(wanted),
        code=code[:100],
        who=who,
        sends=who is not None and is_own and not has_session,
        problem=problem or (_USED if code and who is None else ""),
    )


def _with_cookie(request: Request, target: str, secret: str) -> Response:
    answer = RedirectResponse(target, 303)
    answer.headers["set-cookie"] = cookie_of(secret, secure=request.url.scheme == "https")
    return answer


def _next(wanted: str) -> str:
    """Return the page to go on with, relative to this one; the first one if it is no page here."""
    return f"./{_page(wanted)}"


def _page(wanted: str) -> str:
    """Return the page that is wanted after the sign-in; empty if it is no page here."""
    path = unquote(wanted.partition("?")[0])
    is_page = len(wanted) <= 2000 and _NEXT.fullmatch(wanted) and ".." not in path.split("/")
    return wanted if is_page else ""


ROUTES: Final = (
    Route("/sign-in", show_sign_in, methods=["GET"]),
    Route("/sign-in", sign_in, methods=["POST"]),
    Route("/sign-out", sign_out, methods=["POST"]),
)
