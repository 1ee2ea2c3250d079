"""The history: pages, and a stream that can be resumed."""

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from starlette.responses import Response

from api.access import Ctx, Viewer
from api.answers import Answer, dump_json
from api.history import HistoryFilter, HistoryReader
from api.jobs.conversions import event_answer
from api.patterns import EVENT_ID
from api.routing import StrictRoute
from api.schemas.answers import EventPageOut
from api.schemas.fields import Line, ProjectName, QueryMoment
from api.threads import in_thread
from scheduler.store.queries import MAX_LIMIT
from scheduler.views.history_kinds import EventKind, SubjectKind

router = APIRouter(prefix="/v1", tags=["events"], route_class=StrictRoute)

SSE = "text/event-stream"
EventId = Annotated[int, Query(ge=0, le=2**62)]


@router.get(
    "/events",
    summary="Read or watch the history",
    operation_id="list_events",
    response_class=Response,
    responses={
        200: {
            "model": EventPageOut,
            "description": "a page; or a stream, if Accept is text/event-stream",
            "content": {SSE: {"schema": {"type": "string"}}},
        }
    },
)
async def list_events(
    *,
    request: Request,
    context: Ctx,
    principal: Viewer,
    subject_kind: Annotated[SubjectKind | None, Query(description="about what")] = None,
    subject: Annotated[Line | None, Query(description="id or name")] = None,
    kind: Annotated[list[EventKind], Query(max_length=50, description="any of these")] = [],  # noqa: B006
    actor: Annotated[Line | None, Query(description="the acting user")] = None,
    since_s: Annotated[QueryMoment | None, Query(description="at that time or later")] = None,
    until_s: Annotated[QueryMoment | None, Query(description="before that time")] = None,
    project: Annotated[ProjectName | None, Query(description="only this project's")] = None,
    after: Annotated[EventId | None, Query(description="only event ids above it")] = None,
    before: Annotated[EventId | None, Query(description="only event ids below it")] = None,
    descending: Annotated[bool, Query(description="newest first")] = False,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="most events of one page")] = 100,
    last_event_id: Annotated[
        str | None, Header(max_length=20, pattern=EVENT_ID, description="resume after it")
    ] = None,
) -> Response:
    """Return what happened, oldest first.

    With `Accept: text/event-stream` the answer is a stream of server-sent events: `id` is the event
    id, `event` the kind, `data` the event as JSON. It begins after `Last-Event-ID` or `after`, or
    with new events, and goes on until either side ends it. A comment is sent if nothing happens.
    """
    wanted = HistoryFilter(
        subject_kind=subject_kind or "",
        subject=subject or "",
        kinds=tuple(kind),
        actor=actor or "",
        since_s=since_s,
        until_s=until_s,
        project=project,
    )
    reader = HistoryReader(context=context, principal=principal, wanted=wanted)
    start = int(last_event_id[:18]) if last_event_id else after
    if SSE in request.headers.get("accept", ""):
        if start is None:
            start = (await in_thread(context.store.head)).event_id
        context.check_streams(principal)
        pieces = context.streaming(principal, _stream(reader, start))
        return EventSourceResponse(pieces, headers={"x-accel-buffering": "no"})
    rows, last = await reader.page(
        after=start or 0, before=before, descending=descending, limit=limit
    )
    return Answer({"events": [event_answer(row, principal) for row in rows], "last_event_id": last})


async def _stream(reader: HistoryReader, after: int) -> AsyncGenerator[bytes]:
    """Yield events as they come, until the service stops or the token ends."""
    context, principal = reader.context, reader.principal
    yield KEEPALIVE_COMMENT  # the headers go out at once
    while context.serves(principal):
        rows, last = await reader.page(after=after, limit=MAX_LIMIT)
        for row in rows:
            data = dump_json(event_answer(row, principal)).decode()
            yield format_sse_event(data_str=data, event=row.kind, id=str(row.event_id))
        if last > after:
            after = last
            continue
        waiting = context.service.wait_for_history(after, wait_s=context.settings.heartbeat_s)
        newest = await context.unless_stopping(waiting, principal)
        if newest is not None and newest <= after:
            yield KEEPALIVE_COMMENT
