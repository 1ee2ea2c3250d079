"""Reservations: workers reserved during a time window."""

import asyncio
from dataclasses import asdict, fields
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path
from starlette.responses import Response

from api.access import Ctx, Operator, Viewer
from api.answers import Answer
from api.auth.roles import Principal
from api.context import Context
from api.problems import ProblemError, not_found
from api.routing import StrictRoute
from api.schemas.admin import ReservationIn
from api.schemas.answers import ReservationOut, ReservationsOut
from api.schemas.fields import ProjectName
from scheduler.control.facts.specs import in_words
from scheduler.domain.reservation import Reservation
from scheduler.store.queries import HistoryQuery
from scheduler.views.types import ReservedView

router = APIRouter(prefix="/v1", tags=["reservations"], route_class=StrictRoute)

#: Kinds of events for a reservation's end -> how it ended.
_ENDS: Final = {
    "reservation_deleted": "it was given up",
    "reservation_ended": "its window ended",
    "reservation_released": "it was released when the job that it was for ended,",
}

Named = Annotated[ProjectName, Path(description="reservation")]


@router.get(
    "/reservations",
    summary="List reservations",
    operation_id="list_reservations",
    responses={200: {"model": ReservationsOut}},
)
async def list_reservations(context: Ctx, principal: Viewer) -> Answer:
    """Return the reservations, in the order in which their windows begin.

    Their owners are left out if the token does not see the project, as are users and jobs of
    reservations that name no project.
    """
    return Answer({"reservations": [_shown(principal, v) for v in context.service.reservations()]})


@router.get(
    "/reservations/{name}",
    summary="Show a reservation",
    operation_id="get_reservation",
    responses={200: {"model": ReservationOut}},
)
async def get_reservation(name: Named, context: Ctx, principal: Viewer) -> Answer:
    """Return a reservation with its workers by node."""
    for found in context.service.reservations():
        if found.reservation.name == name:
            return Answer(_shown(principal, found))
    raise await asyncio.to_thread(_gone, context, name)


@router.post(
    "/reservations",
    summary="Reserve workers",
    operation_id="create_reservation",
    status_code=201,
    responses={201: {"model": ReservationOut}},
)
async def create_reservation(given: ReservationIn, context: Ctx, principal: Operator) -> Answer:
    """Reserve workers of a type for a time window."""
    rule = Reservation(
        name=given.name,
        worker_type=given.worker_type,
        workers=given.workers,
        from_s=given.from_s,
        until_s=given.until_s,
        project=given.project or "",
        user=given.user or "",
        job=given.job or "",
    )
    made = await context.service.reserve(rule, actor=principal.subject)
    return Answer(made, status_code=201)


@router.delete(
    "/reservations/{name}",
    summary="Delete a reservation",
    operation_id="delete_reservation",
    status_code=204,
)
async def delete_reservation(name: Named, context: Ctx, principal: Operator) -> Response:
    """Give up a reservation; all jobs may use its workers again."""
    await context.service.delete_reservation(name, actor=principal.subject)
    return Response(status_code=204)


def _gone(context: Context, name: str) -> ProblemError:
    """Return the problem for a missing reservation, with how it ended."""
    query = HistoryQuery(
        subject_kind="reservation", subject=name, kinds=tuple(_ENDS), descending=True, limit=1
    )
    for line in context.service.store.history(query):
        at = in_words(line.at_s)
        return ProblemError(
            404, f"there is no reservation '{name}' any more: {_ENDS[line.kind]} at {at}"
        )
    return not_found("reservation", name)


def _shown(principal: Principal, found: ReservedView) -> ReservedView | dict[str, Any]:
    """Return a reservation as the caller may see it."""
    rule = found.reservation
    if principal.sees(rule.project):
        return found
    shown = {one.name: getattr(found, one.name) for one in fields(found)}
    return shown | {"reservation": asdict(rule) | {"project": "", "user": "", "job": ""}}
