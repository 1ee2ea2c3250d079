"""Builds the REST interface."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Match, Route

from api.agent_fast_path import AgentFastPath
from api.agent_tokens import tell_reuses
from api.answers import Answer
from api.auth.codes import SignInCodes
from api.auth.tokens import Authenticator
from api.context import Context
from api.edge.forwarding import Forwarder
from api.edge.layers import Edge, Gate, instance_of, wants_page
from api.limits import Buckets
from api.openapi import openapi_document
from api.pages import (
    admin,
    changes,
    fairness,
    job,
    jobs,
    many_jobs,
    output,
    rounds,
    sign_in,
    submit,
    words,
)
from api.pages import cluster as cluster_page
from api.pages import events as events_page
from api.pages import policies as policies_page
from api.pages import usage as usage_page
from api.pages.routing import problem_page
from api.pages.static import serve_static
from api.problems import PublicError, fault_of, field_problems, invalid_request
from api.redaction import redact_loggers
from api.routes import (
    agents,
    cluster,
    events,
    execs,
    health,
    jobs_act,
    jobs_read,
    jobs_submit,
    logs,
    nodes,
    policies,
    projects,
    reservations,
    throughputs,
    tokens,
    uploads,
    usage,
    webhooks,
)
from api.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from api.auth.oidc import Provider
    from api.settings import ApiSettings
    from scheduler.runtime.contract import SchedulerService

_log = logging.getLogger("leasehold.api")
_SUBJECTS = (
    jobs_submit,
    jobs_read,
    execs,
    jobs_act,
    uploads,
    logs,
    events,
    nodes,
    cluster,
    policies,
    projects,
    reservations,
    throughputs,
    tokens,
    usage,
    webhooks,
    health,
)
#: Views of the page for the browser.
_PAGES = (
    *(sign_in, jobs, many_jobs, output, job, cluster_page, rounds, fairness, policies_page),
    *(usage_page, events_page, submit, admin, words, changes),
)
OPENAPI_PATH = "/v1/openapi.json"


class Application(FastAPI):
    """The application, with a fast path around its middleware."""

    express: AgentFastPath
    forwarder: Forwarder | None = None
    passing: Edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or forward it to the leader."""
        if self.forwarder is not None and self.forwarder.takes(scope):
            await self.passing(scope, receive, send)
        else:
            await self.express(scope, receive, send)

    async def ordinary(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request through all middlewares and routes."""
        await super().__call__(scope, receive, send)


def create_app(
    service: SchedulerService,
    settings: ApiSettings,
    *,
    now: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    node_of: Callable[[str], Awaitable[str | None]] | None = None,
    approved_of: Callable[[str], Awaitable[Mapping[str, int]]] | None = None,
    provider: Provider | None = None,
) -> FastAPI:
    """Return the application that serves a daemon.

    Call ``stop_waiting`` before the server shuts down: servers wait for open streams.

    Args:
        service: the daemon.
        settings: limits and times.
        now: seconds since the Unix epoch.
        monotonic: seconds on a clock that never runs backwards.
        node_of: see ``Context``.
        approved_of: see ``Context``.
        provider: see ``Context``; closed with the application.
    """
    context = Context(
        service=service,
        settings=settings,
        authenticator=Authenticator(service.store, settings, now=now, monotonic=monotonic),
        buckets=Buckets(monotonic),
        codes=SignInCodes(monotonic),
        now=now,
        stopping=asyncio.Event(),
        node_of=node_of,
        approved_of=approved_of,
        provider=provider,
    )
    app = Application(
        title="Leasehold",
        version=service.health().version,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.context = context
    redact_loggers("leasehold.access", "leasehold.api", "uvicorn.access", "uvicorn.error")
    # Flat, in this order: the agents' routes are asked for most.
    app.router.routes.extend(agents.routes())
    app.router.routes.extend(execs.agent_routes())
    for subject in _SUBJECTS:
        app.router.routes.extend(subject.router.routes)
    app.router.routes.append(Route(OPENAPI_PATH, _serve_document, methods=["GET"]))
    for view in _PAGES:
        app.router.routes.extend(view.ROUTES)
    app.router.routes.append(Route("/static/{digest}/{name}", serve_static, methods=["GET"]))
    app.add_exception_handler(HTTPException, cast("Any", _on_http_error))
    app.add_exception_handler(RequestValidationError, cast("Any", _on_validation_error))
    app.add_middleware(Gate, context=context)

    def page(scope: Scope, fault: PublicError) -> ASGIApp:
        return problem_page(Request({**scope, "app": app}), fault)

    app.add_middleware(Edge, max_body_bytes=settings.max_body_bytes, version=app.version, page=page)
    if settings.forward:
        app.forwarder = Forwarder(context, certificate=settings.certificate)
        app.passing = Edge(
            app.forwarder,
            max_body_bytes=settings.max_body_bytes,
            version=app.version,
            page=page,
        )
    app.express = AgentFastPath(app.ordinary, context=context, version=app.version)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]  # FastAPI's documented way
    return app


def page_path(app: FastAPI, token_file: Path) -> str:
    """Return the path that opens the page, signed in once with the token of a file.

    Without that token, and if no tokens are required, it is the path of the first page.
    """
    context = cast("Context", app.state.context)
    try:
        secret = token_file.read_text().strip() if context.settings.auth else ""
    except (OSError, UnicodeDecodeError):
        secret = ""
    return f"/sign-in?code={context.codes.make(secret)}" if secret else "/"


def stop_waiting(app: FastAPI) -> None:
    """Answer all waiting requests, and end all streams, so that the server can stop."""
    cast("Context", app.state.context).stop()


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context = cast("Context", app.state.context)
    writing = asyncio.create_task(_write_last_uses(context))
    watching = asyncio.create_task(_watch_tokens(context))
    try:
        yield
    finally:
        context.stop()
        writing.cancel()
        watching.cancel()
        if isinstance(app, Application) and app.forwarder is not None:
            await app.forwarder.close()
        if context.provider is not None:
            await context.provider.close()
        await context.authenticator.flush()


async def _write_last_uses(context: Context) -> None:
    while True:
        await asyncio.sleep(context.settings.token_touch_s)
        await context.authenticator.flush()


async def _watch_tokens(context: Context) -> None:
    while True:
        await asyncio.sleep(context.settings.token_check_s)
        try:
            await context.end_lapsed()
            await tell_reuses(context)
        except Exception:  # noqa: BLE001 - the next look may go better
            _log.exception("expired tokens could not be checked")


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = openapi_document(app)
    return app.openapi_schema


async def _serve_document(request: Request) -> Response:
    return Answer(await in_thread(request.app.openapi))  # made at the first request


async def _on_http_error(request: Request, error: HTTPException) -> Response:
    fault = fault_of(error)
    assert fault is not None
    if error.status_code == 404 and error.detail == "Not Found":
        path = request.url.path
        fault = PublicError(
            status=404, detail=f"there is nothing at '{path[:200]}'; see {OPENAPI_PATH}"
        )
    elif error.status_code == 405:
        allowed = _allowed(request)
        fault = PublicError(
            status=405,
            detail=f"{request.method} is not possible here; {allowed} is",
            headers={"Allow": allowed},
        )
    if wants_page(request.url.path, request.headers):
        return problem_page(request, fault)
    return fault.answer(instance_of(request.scope))


async def _on_validation_error(request: Request, error: RequestValidationError) -> Response:
    body = getattr(request.scope.get("route"), "body_field", None)
    model = None if body is None else body.field_info.annotation
    fault = fault_of(invalid_request(field_problems(error.errors(), model)))
    assert fault is not None
    return fault.answer(instance_of(request.scope))


def _allowed(request: Request) -> str:
    """Return the methods of every route at the request's path."""
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return ", ".join(sorted(methods))
