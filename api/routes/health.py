"""The daemon's health: for probes, for Prometheus, for people."""

import re
from typing import Final

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from api.access import Access, Anybody, Ctx
from api.answers import Answer
from api.auth.roles import Principal, Role
from api.edge.layers import principal_of
from api.routing import StrictRoute
from api.schemas.answers import Alive, Ready, VersionOut

router = APIRouter(tags=["health"], route_class=StrictRoute)

METRICS = "text/plain; version=0.0.4; charset=utf-8"
#: A figure's label with a project, and what Prometheus' text format escapes in labels.
_PROJECT: Final = re.compile(rb'[{,]project="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(rb"\\.")
_ESCAPES: Final = {b"\\\\": b"\\", b'\\"': b'"', b"\\n": b"\n"}
#: Version of the interface.
API_VERSION = "v1"


@router.get(
    "/healthz",
    summary="Check that the process answers",
    operation_id="healthz",
    responses={200: {"model": Alive}},
)
async def healthz() -> Answer:
    """Answer; that is all. Needs no token."""
    return Answer({"status": "ok"})


@router.get(
    "/readyz",
    summary="Check that requests can be served",
    operation_id="readyz",
    responses={200: {"model": Ready}, 503: {"model": Ready, "description": "Not ready"}},
)
async def readyz(request: Request, context: Ctx) -> Answer:
    """Answer 200 if requests can be served, else 503. Needs no token."""
    health = context.service.health()
    known = isinstance(getattr(request.state, "principal", None), Principal)
    problems = health.problems
    if not known:
        # While the database is away no token can be checked. The details may name hosts and jobs.
        problems = () if health.ready else tuple(one.partition(": ")[0] for one in problems)
    answer = {
        "ready": health.ready,
        "leading": health.leading,
        "version": health.version,
        "problems": problems,
    }
    return Answer(answer, 200 if health.ready else 503)


@router.get(
    "/v1/version",
    summary="Show the program's version",
    operation_id="version",
    responses={200: {"model": VersionOut}},
)
async def version(context: Ctx, principal: Anybody) -> Answer:  # noqa: ARG001 - asks for a token
    """Return the versions of the program and of the interface."""
    return Answer({"version": context.service.health().version, "api": API_VERSION})


async def _may_read_metrics(request: Request, context: Ctx) -> None:
    if context.settings.metrics_open:
        return
    if principal_of(request.state).role is not Role.METRICS:
        await Access(Role.VIEWER)(request)


@router.get(
    "/metrics",
    summary="Show figures for Prometheus",
    operation_id="metrics",
    response_class=Response,
    dependencies=[Depends(_may_read_metrics)],
    responses={
        200: {
            "description": "Prometheus' text format",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
)
async def metrics(request: Request, context: Ctx) -> Response:
    """Return the figures in Prometheus' text format; needs a token unless configured open.

    A token that is confined to projects gets no figures of other projects.
    """
    text = context.service.metrics()
    if not context.settings.metrics_open:
        text = _of_visible_projects(text, principal_of(request.state))
    return Response(text, media_type=METRICS)


def _of_visible_projects(text: bytes, principal: Principal) -> bytes:
    """Return the lines of figures without those of projects that the caller may not see."""
    if not principal.projects:
        return text
    return b"".join(
        line
        for line in text.splitlines(keepends=True)
        if line.startswith(b"#")
        or not (found := _PROJECT.search(line))
        or principal.sees(_unescaped(found[1]))
    )


def _unescaped(label: bytes) -> str:
    """Return the value of a label as it was before it was written in Prometheus' format."""
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[0], found[0]), label).decode()
