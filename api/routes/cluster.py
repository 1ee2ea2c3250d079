"""The cluster in figures: rounds, leases, the allocation."""

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Query

from api.access import Ctx, Viewer
from api.answers import Answer
from api.routing import StrictRoute
from api.schemas.answers import AllocationOut, ClusterOut, LeasesOut
from api.selection import own_active_ids

router = APIRouter(prefix="/v1", tags=["cluster"], route_class=StrictRoute)


@router.get(
    "/cluster",
    summary="Show the cluster in figures",
    operation_id="get_cluster",
    responses={200: {"model": ClusterOut}},
)
async def get_cluster(context: Ctx, principal: Viewer) -> Answer:  # noqa: ARG001 - asks for a role
    """Return workers, utilisation, the current round, and how many jobs wait for what."""
    return Answer(context.service.cluster())


@router.get(
    "/leases",
    summary="List the leases in force",
    operation_id="list_leases",
    responses={200: {"model": LeasesOut}},
)
async def list_leases(
    *,
    context: Ctx,
    principal: Viewer,
    idle: Annotated[
        bool, Query(description="only those whose GPUs hardly compute, the longest idle first")
    ] = False,
) -> Answer:
    """Return the leases in force by id, those of the caller's projects."""
    leases = [one for one in context.service.leases() if principal.sees(one.project)]
    if idle:
        since = [(one.idle_since_s, one) for one in leases if one.idle_since_s is not None]
        leases = [one for _, one in sorted(since, key=lambda pair: pair[0])]
    return Answer({"leases": leases})


@router.get(
    "/allocation",
    summary="Show the allocation in force",
    operation_id="get_allocation",
    responses={200: {"model": AllocationOut}},
)
async def get_allocation(context: Ctx, principal: Viewer) -> Answer:
    """Return what fraction of time the policy gives each job per worker type, and what it got."""
    view = context.service.allocation()
    own = await own_active_ids(context, principal)
    if own is not None:
        view = dataclasses.replace(
            view,
            shares={job: share for job, share in view.shares.items() if job in own},
            received={job: share for job, share in view.received.items() if job in own},
        )
    return Answer(view)
