"""Throughputs: measured against declared."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.access import Ctx, Operator, Viewer
from api.answers import Answer
from api.jobs.selection import visible_type
from api.routing import StrictRoute
from api.schemas.admin import ThroughputsIn
from api.schemas.answers import ChangedOut, ThroughputsOut
from api.schemas.fields import JobType, WorkerType

router = APIRouter(prefix="/v1", tags=["throughputs"], route_class=StrictRoute)


@router.get(
    "/throughputs",
    summary="Show the throughput table",
    operation_id="list_throughputs",
    responses={200: {"model": ThroughputsOut}},
)
async def list_throughputs(
    context: Ctx,
    principal: Viewer,
    job_type: Annotated[JobType | None, Query(description="only this one")] = None,
    worker_type: Annotated[WorkerType | None, Query(description="only this one")] = None,
) -> Answer:
    """Return steps/s by job type, scale factor and worker type: measured, declared, estimated."""
    knows = await visible_type(context, principal)
    found = [
        figure
        for figure in context.service.throughputs()
        if job_type in {None, figure.job_type}
        and worker_type in {None, figure.worker_type}
        and knows(figure.job_type)
    ]
    pairs = [
        pair
        for pair in context.service.sharing()
        if job_type in {None, pair.job_type, pair.with_job_type}
        and worker_type in {None, pair.worker_type}
        and knows(pair.job_type)
        and knows(pair.with_job_type)
    ]
    return Answer({"throughputs": found, "pairs": pairs})


@router.put(
    "/throughputs",
    summary="Declare throughputs",
    operation_id="declare_throughputs",
    responses={200: {"model": ChangedOut}},
)
async def declare_throughputs(given: ThroughputsIn, context: Ctx, principal: Operator) -> Answer:
    """Declare steps/s; figures that are not named stay as they are."""
    figures = [
        (f.job_type, f.scale_factor, f.worker_type, f.steps_per_s) for f in given.throughputs
    ]
    pairs = [
        (
            (p.job_type, p.scale_factor),
            (p.with_job_type, p.scale_factor),
            p.worker_type,
            (p.part, p.with_part),
        )
        for p in given.pairs
    ]
    changed = await context.service.declare_throughputs(
        figures, pairs=pairs, actor=principal.subject
    )
    return Answer({"changed": changed})


@router.delete(
    "/throughputs",
    summary="Forget a job type's throughputs",
    operation_id="forget_throughputs",
    responses={200: {"model": ChangedOut}},
)
async def forget_throughputs(
    context: Ctx,
    principal: Operator,
    job_type: Annotated[JobType, Query(description="the job type with the figures to forget")],
) -> Answer:
    """Forget the declared and measured figures of a job type; its jobs go on."""
    changed = await context.service.forget_throughputs(job_type, actor=principal.subject)
    return Answer({"changed": changed})
