"""Reading jobs: lists, one job, its leases, its history, and why it waits."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from api.access import Ctx, Viewer
from api.answers import Answer
from api.jobs.conversions import event_answer, explanation_answer
from api.jobs.selection import (
    answer_of_job,
    attempts_of,
    page_of_jobs,
    values_of,
    visible_job,
    visible_projects,
)
from api.problems import FieldProblem, invalid_request
from api.routing import StrictRoute
from api.schemas.answers import EventPageOut
from api.schemas.fields import JobId
from api.schemas.filters import with_filters
from api.schemas.job_answers import AttemptsOut, ExplanationOut, JobPageOut, JobWithSpec
from api.schemas.jobs import SortKey
from api.threads import in_thread
from scheduler.store.filters import JobFilter
from scheduler.store.queries import MAX_LIMIT, HistoryQuery, JobOrder, JobQuery

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=StrictRoute)

Id = Annotated[JobId, Path(description="job id")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="most items of one page")]


@router.get(
    "/jobs",
    summary="List jobs",
    operation_id="list_jobs",
    responses={200: {"model": JobPageOut}},
)
@with_filters
async def list_jobs(
    *,
    context: Ctx,
    principal: Viewer,
    label: Annotated[
        list[str], Query(max_length=64, description="key=value; every one of these")
    ] = [],  # noqa: B006
    called: Annotated[
        JobId | None, Query(description="its name, or its array's, or the beginning of its id")
    ] = None,
    sort: Annotated[SortKey, Query(description="order; '-' puts the largest first")] = "-submitted",
    limit: Limit = 100,
    cursor: Annotated[
        str | None, Query(max_length=2000, description="next_cursor of the page before")
    ] = None,
    **filters: Any,
) -> Answer:
    """Return a page of jobs, newest first unless sorted otherwise.

    `finished` lists only jobs that have ended, `deadline` only jobs with a deadline.
    """
    labels = _labels(label)
    projects = visible_projects(principal, filters["project"])
    if projects is None:
        return Answer({"jobs": [], "next_cursor": None})
    given = values_of(filters) | {"projects": projects}
    where = JobFilter(**given, labels=labels, called=called or "")
    query = JobQuery(
        where=where,
        order=JobOrder(sort.removeprefix("-")),
        descending=sort.startswith("-"),
        limit=limit,
        cursor=cursor,
    )
    jobs, next_cursor = await page_of_jobs(context, query)
    return Answer({"jobs": jobs, "next_cursor": next_cursor})


@router.get(
    "/jobs/{job_id}",
    summary="Show a job",
    operation_id="get_job",
    responses={200: {"model": JobWithSpec}},
)
async def get_job(job_id: Id, context: Ctx, principal: Viewer) -> Answer:
    """Return a job with its specification.

    The values of `env` are shown to the subject that submitted the job and to administrators;
    others see `***` in their place.
    """
    row = await visible_job(context, principal, job_id)
    return Answer(await answer_of_job(context, row, principal))


@router.get(
    "/jobs/{job_id}/attempts",
    summary="List a job's leases",
    operation_id="list_attempts",
    responses={200: {"model": AttemptsOut}},
)
async def list_attempts(job_id: Id, context: Ctx, principal: Viewer) -> Answer:
    """Return the leases that a job has had, oldest first."""
    await visible_job(context, principal, job_id)
    return Answer({"attempts": await attempts_of(context, job_id)})


@router.get(
    "/jobs/{job_id}/events",
    summary="List a job's history",
    operation_id="list_job_events",
    responses={200: {"model": EventPageOut}},
)
async def list_job_events(
    job_id: Id,
    context: Ctx,
    principal: Viewer,
    after: Annotated[int, Query(ge=0, le=2**62, description="only event ids above it")] = 0,
    limit: Limit = 100,
) -> Answer:
    """Return what happened to a job, oldest first."""
    await visible_job(context, principal, job_id)
    query = HistoryQuery(subject_kind="job", subject=job_id, after_id=after, limit=limit)
    rows = await in_thread(context.store.history, query)
    last = rows[-1].event_id if rows else after
    return Answer({"events": [event_answer(row, principal) for row in rows], "last_event_id": last})


@router.get(
    "/jobs/{job_id}/explain",
    summary="Explain a job's state",
    operation_id="explain_job",
    responses={200: {"model": ExplanationOut}},
)
async def explain_job(
    job_id: Id,
    context: Ctx,
    principal: Viewer,
    forecast: Annotated[bool, Query(description="whether start and end are forecast")] = True,
) -> Answer:
    """Return the first reason that holds, the remedy, and the expected start."""
    row = await visible_job(context, principal, job_id)
    explanation = await context.service.explain(row, forecast=forecast)
    return Answer(explanation_answer(explanation, principal))


def _labels(given: list[str]) -> dict[str, str]:
    pairs: dict[str, Any] = {}
    problems = []
    for position, text in enumerate(given):
        key, sign, value = text.partition("=")
        if not sign or not key or len(text) > 400:
            problems.append(
                FieldProblem(field=f"label.{position}", value=text, problem="must be key=value")
            )
        pairs[key] = value
    if problems:
        raise invalid_request(problems)
    return pairs
