"""Sign in with a token or at the identity provider, and sign out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from api.auth import code_flow
from api.auth.browser import (
    LONGEST,
    SIGN_IN_COOKIE,
    check_same_site,
    cookie_of,
    cookies_named,
    sign_in_cookie,
    site_of,
)
from api.auth.roles import Role, TokenFault
from api.context import context_of
from api.edge.layers import principal_with, stranger_bucket
from api.pages.queries import write_query
from api.pages.rendering import render
from api.pages.routing import error_page, read_form
from api.problems import ProblemError, rate_limited
from api.settings import RateLimit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import Scope

    from api.auth.oidc import Provider
    from api.auth.roles import Principal
    from api.context import Context

#: Wrong tokens of one address: ten at once, then one every two seconds.
TRIES: Final = RateLimit(per_s=0.5, burst=10)
#: Sign-ins at the identity provider that an address begins: many people may share one.
STARTS: Final = RateLimit(per_s=1.0, burst=50)
#: A page of this scheduler, as a relative URL.
_NEXT: Final = re.compile(r"[A-Za-z0-9._~\[\]-]+(/[A-Za-z0-9._~\[\]-]+)*(\?[^\s\\<>\"']*)?")
_USED: Final = (
    "This link was used already, or is older than a minute. `leasehold page` makes another one."
)
_ELSEWHERE: Final = (
    "This sign-in was not begun in this browser, or was begun over ten minutes ago. Begin again."
)
_UNKNOWN: Final = "This token is not valid: it is unknown, has expired, or was revoked."


async def show_sign_in(request: Request) -> Response:
    """Show the form; a caller with a session goes on, unless a link is for another person."""
    query, principal = request.query_params, getattr(request.state, "principal", None)
    wanted, code = query.get("next", ""), query.get("code", "")
    if principal is not None and principal.has(Role.VIEWER) and not code:
        return RedirectResponse(_next(wanted), 303)
    return await _form(request, wanted, code=code)


async def sign_in(request: Request) -> Response:
    """Begin a session with a token, or with a one-time code for one."""
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
        return await _form(request, wanted, problem=problem)
    return await _begin(request, principal, secret, wanted)


async def _begin(
    request: Request, principal: Principal, secret: str, wanted: str, *, secure: bool = False
) -> Response:
    """Begin a session, unless the token has no pages or fits into no cookie."""
    if not principal.has(Role.VIEWER):
        words = f"The token of '{principal.subject}' has role {principal.role}, which has no pages."
        problem = f"{words} Use a token of a person."
    elif len(secret) > LONGEST:
        problem = f"This token has {len(secret)} characters; browsers keep {LONGEST} at most."
    else:
        return _with_cookie(request, _next(wanted), secret, secure=secure)
    return await _form(request, wanted, problem=problem)


async def to_provider(request: Request) -> Response:
    """Lead to the identity provider."""
    provider, query = _provider(request), request.query_params
    wanted = _page(query.get("next", ""))
    # A link in a foreign page must not put its reader into another session.
    if site_of(request.headers) in {"cross-site", "same-site"}:
        return await _form(request, wanted)
    if elsewhere := _own_place(request, provider, wanted):
        return RedirectResponse(elsewhere, 303)
    _take_start(request)
    begun = code_flow.BegunSignIn.begin(wanted)
    try:
        address = await provider.address(begun)
    except code_flow.SignInError as error:
        return await _form(request, wanted, problem=str(error), status=error.status)
    answer = RedirectResponse(address, 303)
    answer.headers["set-cookie"] = _begun_cookie(request, provider, begun.written())
    return answer


def _own_place(request: Request, provider: Provider, wanted: str) -> str:
    """Return where to begin, if it is another host than that to which the provider leads back.

    The cookie of the sign-in is of the host where it began. A proxy may change the host's name on
    the way here, so that a browser is sent there once only.
    """
    back = provider.settings.redirect_url
    here = request.headers.get("host", "").lower()
    if "moved" in request.query_params or here == urlsplit(back).netloc.lower():
        return ""
    query = write_query({"next": wanted, "moved": "1"})
    return f"{back.removesuffix('sign-in-done')}sign-in-provider{query}"


async def from_provider(request: Request) -> Response:
    """Begin a session with the code that the identity provider sends along."""
    provider = _provider(request)
    kept = cookies_named(request.headers, SIGN_IN_COOKIE)
    found = [one for text in kept if (one := code_flow.BegunSignIn.read(text)) is not None]
    state = request.query_params.get("state", "")
    begun = next((one for one in found if one.is_answered_by(state)), None)
    if begun is None:  # another sign-in of this browser, if there is one, goes on
        return await _form(request, "", problem=_ELSEWHERE)
    caller = f"sign-in {stranger_bucket(request.scope)}"
    wait_s = context_of(request).buckets.wait_s(caller, TRIES)
    if wait_s > 0:
        raise rate_limited(wait_s, cause="too many sign-ins that failed from this address")
    try:
        answer = await _returned(request, provider, begun)
    except code_flow.SignInError as error:
        context_of(request).buckets.take(caller, TRIES)
        answer = await _form(request, begun.wanted, problem=str(error), status=error.status)
    answer.headers.append("set-cookie", _begun_cookie(request, provider, ""))
    return answer


async def _returned(request: Request, provider: Provider, begun: code_flow.BegunSignIn) -> Response:
    query = request.query_params
    if query.get("iss", provider.settings.issuer) != provider.settings.issuer:
        raise code_flow.SignInError("The answer is of another identity provider.")
    if error := query.get("error", ""):
        raise code_flow.refused(error, query.get("error_description", ""))
    secret = await provider.exchange(begun, query.get("code", ""))
    principal = await principal_with(secret, context_of(request), request.scope)
    if principal is None:
        raise code_flow.SignInError(why_refused(request.scope))
    secure = _is_secure(request, provider)
    return await _begin(request, principal, secret, begun.wanted, secure=secure)


def _is_secure(request: Request, provider: Provider) -> bool:
    """Return whether browsers use TLS, also if the proxy in front does not say so."""
    return request.url.scheme == "https" or provider.settings.redirect_url.startswith("https:")


def _provider(request: Request) -> Provider:
    """Return the identity provider.

    Raises:
        ProblemError: the page signs nobody in there.
    """
    provider = context_of(request).provider
    if provider is None or not provider.settings.client_id:
        raise ProblemError(404, "this page signs in with tokens alone (oidc.client_id is not set)")
    return provider


def _take_start(request: Request) -> None:
    """Count a sign-in at the identity provider.

    Raises:
        ProblemError: there were too many of this address.
    """
    caller = f"sign-in-provider {stranger_bucket(request.scope)}"
    wait_s = context_of(request).buckets.take(caller, STARTS)
    if wait_s > 0:
        raise rate_limited(wait_s, cause="too many sign-ins from this address")


def _begun_cookie(request: Request, provider: Provider, text: str) -> str:
    secure = _is_secure(request, provider)
    return sign_in_cookie(text, secure=secure, lasts_s=code_flow.LASTS_S)


def why_refused(scope: Scope) -> str:
    """Return why a token begins no session."""
    fault = scope["state"].get("token_fault")
    if isinstance(fault, TokenFault):
        return f"The identity provider's token is not taken: {fault.why}."
    return _UNKNOWN


async def sign_out(request: Request) -> Response:
    """End the session of this browser; its token stays valid."""
    check_same_site(request.headers)
    return _with_cookie(request, "./sign-in", "")


async def _form(
    request: Request, wanted: str, *, code: str = "", problem: str = "", status: int = 401
) -> Response:
    context = context_of(request)
    who = await principal_with(context.codes.token(code), context) if code else None
    # A link that a person opens from a terminal signs in by itself. One in a foreign page does not:
    # it could put the reader into a session of the page's author.
    is_own = request.headers.get("sec-fetch-site") == "none"
    has_session = getattr(request.state, "principal", None) is not None
    return render(
        request,
        "sign_in.html",
        status=status if problem else 200,
        next=_page(wanted),
        code=code[:100],
        who=who,
        sends=who is not None and is_own and not has_session,
        provider=_host_of_provider(context),
        problem=problem or (_USED if code and who is None else ""),
    )


def _host_of_provider(context: Context) -> str:
    """Return the name of the identity provider that signs people in; empty if there is none."""
    provider = context.provider
    if provider is None or not provider.settings.client_id:
        return ""
    return urlsplit(provider.settings.issuer).hostname or ""


def _with_cookie(request: Request, target: str, secret: str, *, secure: bool = False) -> Response:
    answer = RedirectResponse(target, 303)
    is_secure = secure or request.url.scheme == "https"
    answer.headers["set-cookie"] = cookie_of(secret, secure=is_secure)
    return answer


def _next(wanted: str) -> str:
    """Return the page to go on with, relative to this one; the first one if it is no page here."""
    return f"./{_page(wanted)}"


def _page(wanted: str) -> str:
    """Return the page that is wanted after the sign-in; empty if it is no page here."""
    path = unquote(wanted.partition("?")[0])
    is_page = len(wanted) <= 2000 and _NEXT.fullmatch(wanted) and ".." not in path.split("/")
    return wanted if is_page else ""


def _route(path: str, view: Callable[[Request], Awaitable[Response]], method: str) -> Route:
    """Return a route that needs no session; its errors are pages."""

    async def answer(request: Request) -> Response:
        try:
            return await view(request)
        except Exception as error:  # noqa: BLE001 - every error has a page
            return error_page(request, error)

    return Route(path, answer, methods=[method])


ROUTES: Final = (
    _route("/sign-in", show_sign_in, "GET"),
    _route("/sign-in", sign_in, "POST"),
    _route("/sign-in-provider", to_provider, "GET"),
    _route("/sign-in-done", from_provider, "GET"),
    _route("/sign-out", sign_out, "POST"),
)
