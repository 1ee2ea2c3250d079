"""The cluster in figures: rounds, leases, the allocation."""

import dataclasses

from fastapi import APIRouter

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
async def list_leases(context: Ctx, principal: Viewer) -> Answer:
    """Return the leases in force by id, those of the caller's projects."""
    leases = context.service.leases()
    return Answer({"leases": [lease for lease in leases if principal.sees(lease.project)]})


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
