"""Routes of pages: each with its role; errors are pages, and callers without a session sign in."""

from __future__ import annotations

import enum
import hmac
import logging
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import parse_qs, quote

import anyio
from pydantic import BaseModel, ValidationError
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from api.access import Access
from api.auth.browser import FORM_KEY, check_same_site, form_key, session_of
from api.auth.roles import Role
from api.context import context_of
from api.edge.layers import fault_for, refusal
from api.pages.rendering import render, root_of
from api.problems import (
    FieldProblem,
    ProblemError,
    PublicError,
    fault_of,
    field_problems,
    internal_error,
    invalid_request,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from api.auth.roles import Principal
    from api.context import Context

    #: A view: the request and its caller -> the answer.
    View = Callable[[Request, Principal], Awaitable[Response]]
    #: An action: the request, its caller, the fields of the form -> the answer.
    Action = Callable[[Request, Principal, dict[str, str]], Awaitable[Response]]

F = TypeVar("F", bound=BaseModel)
W = TypeVar("W", bound=enum.StrEnum)
#: Largest body of a form, and most fields.
MOST_FORM_BYTES: Final = 2**20
MOST_FIELDS: Final = 200
#: Statuses of errors that a form shows itself.
_OF_FORMS: Final = {400, 403, 409, 413, 422, 429, 503}
#: Longest wait of a form for a scheduler that is starting, and the time between two looks.
STARTING_S: Final = 10.0
_LOOK_S: Final = 0.1
_log = logging.getLogger("leasehold.api")


def page(path: str, view: View, *, role: Role = Role.VIEWER, everywhere: bool = False) -> Route:
    """Return the route of a view.

    Args:
        path: of the page.
        view: makes the page.
        role: see ``Access``.
        everywhere: see ``Access``.
    """
    access = Access(role, everywhere=everywhere)

    async def serve(request: Request) -> Response:
        try:
            principal = await access(request)
            await context_of(request).service.until_calm()
            return await view(request, principal)
        except Exception as error:  # noqa: BLE001 - every error has a page
            return error_page(request, error)

    return Route(path, serve, methods=["GET"])


def action(path: str, act: Action, *, role: Role = Role.USER, everywhere: bool = False) -> Route:
    """Return the route of an action, which a form of a page sends; the arguments are ``page``'s."""
    access = Access(role, everywhere=everywhere)

    async def serve(request: Request) -> Response:
        try:
            check_same_site(request.headers)
            principal = await access(request)
            form = await read_form(request)
            _check_key(request, form)
            await _until_started(context_of(request))
            return await act(request, principal, form)
        except Exception as error:  # noqa: BLE001 - every error has a page
            return error_page(request, error)

    return Route(path, serve, methods=["POST"])


async def _until_started(context: Context) -> None:
    """Wait while the scheduler is starting; pages are shown before it can act."""
    with anyio.move_on_after(STARTING_S):
        while not ((now := context.service.health()).ready or now.leading or now.leader_address):  # noqa: ASYNC110 - a standby gives no sign
            await anyio.sleep(_LOOK_S)


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form; the last one of a name counts.

    Raises:
        ProblemError: it is too large, or no form.
    """
    body = await request.body()
    if len(body) > MOST_FORM_BYTES:
        raise ProblemError(413, f"the form has {len(body)} bytes; {MOST_FORM_BYTES} are the most")
    try:
        text = body.decode()
        found = parse_qs(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise ProblemError(400, "the body is not that of a form") from error
    return {name: values[-1] for name, values in found.items() if "\0" not in values[-1]}


def parse(form: type[F], values: Mapping[str, object]) -> F:
    """Return the body that a route of the REST interface would be given.

    Raises:
        ProblemError: a value cannot be used.
    """
    try:
        return form.model_validate(values)
    except ValidationError as error:
        raise invalid_request(field_problems(error.errors(), form)) from error


def read_reason(form: Mapping[str, str]) -> dict[str, str]:
    """Return the body that gives the reason of a form."""
    return {"reason": form.get("reason", "").strip()}


def read_word(words: type[W], name: str, text: str) -> W:
    """Return a word of an enumeration.

    Raises:
        ProblemError: it is none.
    """
    try:
        return words(text)
    except ValueError:
        problem = f"must be one of {', '.join(words)}"
        raise invalid_request([FieldProblem(field=name, value=text, problem=problem)]) from None


def problem_of_form(error: Exception) -> PublicError:
    """Return the public form of an error that a form shows beside what was typed.

    Raises:
        Exception: the error itself, if it has a page of its own.
    """
    fault = fault_of(error)
    if fault is None or fault.status not in _OF_FORMS:
        raise error
    return fault


def _check_key(request: Request, form: dict[str, str]) -> None:
    """Refuse a form without the key of the session.

    Raises:
        ProblemError: the key is missing, or of another session.
    """
    expected = form_key(session_of(request))
    if not hmac.compare_digest(form.get(FORM_KEY, "").encode(), expected.encode()):
        raise ProblemError(
            403, "this form is of another session; load its page again, and send it from there"
        )


def error_page(request: Request, error: Exception) -> Response:
    """Return the page of an error; callers without a session go to the page for signing in."""
    fault = fault_for(error, request.scope)
    if fault is not None and fault.status == 401:
        fault = fault_of(refusal(request.scope))
    if fault is None:
        request_id = request.scope["state"]["request_id"]
        _log.error("request %s failed", request_id, exc_info=error)
        fault = internal_error(request_id)
    if fault.status == 401:
        return _to_sign_in(request, fault)
    if fault.code == "not_leading" and fault.status == 307:
        fault = PublicError(status=503, detail=fault.detail, headers={"Retry-After": "2"})
    return problem_page(request, fault)


def problem_page(request: Request, fault: PublicError) -> Response:
    """Return the page of a problem."""
    document = fault.document()
    answer = render(request, "problem.html", status=fault.status, problem=document)
    for name, value in fault.headers.items():
        answer.headers[name] = value
    return answer


def _to_sign_in(request: Request, fault: PublicError) -> Response:
    if "hx-request" in request.headers or request.method != "GET":
        return problem_page(request, fault)
    target = request.url.path.lstrip("/") or "jobs"
    target += f"?{request.url.query}" if request.url.query else ""
    # A browser sends the cookie of a session only with requests that its own pages begin. A link in
    # a message is none; the same page once more is.
    if request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}:
        return HTMLResponse(
            '<!doctype html><meta http-equiv="refresh" content="0"><title>Leasehold</title>'
        )
    return RedirectResponse(f"{root_of(request)}sign-in?next={quote(target, safe='')}", 303)
