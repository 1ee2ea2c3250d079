"""The ledger: worker-seconds under leases."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query

from api.access import Ctx, Viewer
from api.answers import Answer
from api.auth.roles import Principal
from api.context import Context
from api.routing import StrictRoute
from api.schemas.answers import UsageOfGroup, UsageOut
from api.schemas.fields import ProjectName, QueryMoment
from api.schemas.values import values_of
from api.threads import in_thread
from scheduler.store.protocol import Store
from scheduler.store.usage import DAY_S, UsageKey, UsageQuery

router = APIRouter(prefix="/v1", tags=["usage"], route_class=StrictRoute)

#: Default time span in days.
DAYS = 30


@router.get(
    "/usage",
    summary="Show usage",
    operation_id="show_usage",
    responses={200: {"model": UsageOut}},
)
async def show_usage(
    *,
    context: Ctx,
    principal: Viewer,
    by: Annotated[list[UsageKey], Query(max_length=6, description="add up by these")] = [],  # noqa: B006 - copied
    since_s: Annotated[QueryMoment | None, Query(description="at that time or later")] = None,
    until_s: Annotated[QueryMoment | None, Query(description="before that time")] = None,
    project: Annotated[ProjectName | None, Query(description="only this project's")] = None,
) -> Answer:
    """Return worker-seconds that were held under leases, by project, owner and so on.

    The window is the last 30 days by default, and ends now at the latest. Sums are exact
    in `worker_us`, whole microseconds: they are the same by every grouping. Leases that have not
    ended count as far as they have come. Jobs that have been forgotten count by whole days of UTC,
    and have no id. A worker that two jobs share is held by both.

    `gpu_used_s` is the part in which GPUs computed, as agents measure it by NVML. `gpu_measured_s`
    is the time with a measurement. It is spread evenly over each lease; of a lease that has not
    ended it is known up to the last round.
    """
    found = await usage_of(
        context, principal, by=by, since_s=since_s, until_s=until_s, project=project
    )
    return Answer(found)


async def usage_of(
    context: Context,
    principal: Principal,
    *,
    by: Sequence[UsageKey],
    since_s: float | None = None,
    until_s: float | None = None,
    project: str | None = None,
) -> dict[str, Any]:
    """Return the answer to ``show_usage``; the arguments are those of the route."""
    until_s = min(context.now() if until_s is None else until_s, context.now())
    projects = principal.projects or None
    if project is not None:
        projects = frozenset({project}) if principal.sees(project) else frozenset()
    query = UsageQuery(
        from_s=max(until_s - DAYS * DAY_S, 0.0) if since_s is None else since_s,
        to_s=until_s,
        by=tuple(by),
        projects=projects,
    )
    return await in_thread(_usage, context.store, query)


def _usage(store: Store, query: UsageQuery) -> dict[str, Any]:
    rows = store.usage(query)
    measured_us = sum(row.gpu_measured_us for row in rows)
    return {
        "since_s": query.from_s,
        "until_s": query.to_s,
        "worker_s": sum(row.worker_us for row in rows) / 1e6,
        "gpu_used_s": sum(row.gpu_used_us for row in rows) / 1e6 if measured_us else None,
        "gpu_measured_s": measured_us / 1e6,
        "usage": [
            values_of(UsageOfGroup, row)
            | {
                "worker_s": row.worker_s,
                "gpu_used_s": row.gpu_used_s,
                "gpu_measured_s": row.gpu_measured_us / 1e6,
            }
            for row in rows
        ],
    }
