"""The cluster in figures: rounds, leases, the allocation."""

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Query

from api.access import Ctx, Viewer
from api.answers import Answer
from api.jobs.selection import attempts_page, own_active_ids
from api.problems import FieldProblem, invalid_request
from api.routing import StrictRoute
from api.schemas.answers import AllocationOut, ClusterOut, LeasesOut, PlannedRoundOut
from api.schemas.fields import NodeName, QueryMoment
from api.schemas.job_answers import AttemptPageOut
from scheduler.store.queries import MAX_LIMIT, AttemptQuery

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
        bool, Query(description="only those with GPUs that hardly compute, the longest idle first")
    ] = False,
) -> Answer:
    """Return the leases in force by id, those of the caller's projects."""
    leases = [one for one in context.service.leases() if principal.sees(one.project)]
    if idle:
        since = [(one.idle_since_s, one) for one in leases if one.idle_since_s is not None]
        leases = [one for _, one in sorted(since, key=lambda pair: pair[0])]
    return Answer({"leases": leases})


@router.get(
    "/plan",
    summary="Show the plan of the next round",
    operation_id="get_plan",
    responses={200: {"model": PlannedRoundOut}},
)
async def get_plan(context: Ctx, principal: Viewer) -> Answer:
    """Return the leases of the next round, those of the caller's projects.

    Until the next round is planned, `leases` has those that wait for workers to become free.
    """
    plan = context.service.plan()
    leases = tuple(one for one in plan.leases if principal.sees(one.project))
    return Answer(dataclasses.replace(plan, leases=leases))


@router.get(
    "/attempts",
    summary="List the leases of a window",
    operation_id="list_cluster_attempts",
    responses={200: {"model": AttemptPageOut}},
)
async def list_attempts(
    *,
    context: Ctx,
    principal: Viewer,
    since_s: Annotated[
        QueryMoment | None, Query(description="only leases that held workers after that time")
    ] = None,
    until_s: Annotated[
        QueryMoment | None, Query(description="only leases that began before that time")
    ] = None,
    node: Annotated[
        list[NodeName], Query(max_length=200, description="with workers of any of these nodes")
    ] = [],  # noqa: B006 - copied
    before: Annotated[int | None, Query(ge=1, le=2**62, description="only ids below it")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="most items of one page")] = 100,
) -> Answer:
    """Return the newest leases that held workers in a window, newest first.

    Times are seconds since the Unix epoch. Leases of jobs of foreign projects are left out.
    """
    if since_s is not None and until_s is not None and until_s <= since_s:
        problem = f"must be later than since_s, {since_s}"
        raise invalid_request([FieldProblem(field="until_s", value=until_s, problem=problem)])
    query = AttemptQuery(
        since_s=since_s, until_s=until_s, nodes=tuple(node), before_id=before, limit=limit
    )
    return Answer(await attempts_page(context, principal, query))


@router.get(
    "/allocation",
    summary="Show the allocation in force",
    operation_id="get_allocation",
    responses={200: {"model": AllocationOut}},
)
async def get_allocation(context: Ctx, principal: Viewer) -> Answer:
    """Return the fraction of time per job and worker type: due by the policy, and received."""
    view = context.service.allocation()
    own = await own_active_ids(context, principal)
    if own is not None:
        view = dataclasses.replace(
            view,
            shares={job: share for job, share in view.shares.items() if job in own},
            received={job: share for job, share in view.received.items() if job in own},
        )
    return Answer(view)
