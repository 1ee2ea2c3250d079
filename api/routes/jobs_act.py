"""Acting on jobs: cancel, hold, release, requeue, reweigh; singly and in bulk."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path

from api.access import Ctx, User
from api.answers import Answer
from api.auth.roles import Principal
from api.context import Context
from api.jobs.selection import selected_ids, visible_ids, visible_job
from api.problems import ProblemError
from api.routing import StrictRoute
from api.schemas.fields import JobId
from api.schemas.job_answers import ActedOut, BulkOut
from api.schemas.jobs import ActIn, BulkChangeIn, ChangeIn, Chosen, ReasonIn
from scheduler.control.facts.requests import Acted, JobAction

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=StrictRoute)

Id = Annotated[JobId, Path(description="job id")]
Act = Callable[[Sequence[str]], Awaitable[tuple[Acted, ...]]]

#: Jobs that are passed to the service at a time.
CHUNK = 500
_STATUS = {"not_found": 404, "conflict": 409, "invalid": 422, "quota": 422}


@router.post(
    "/jobs/{job_id}/{action}",
    summary="Act on a job",
    operation_id="act_on_job",
    responses={200: {"model": ActedOut}},
)
async def act_on_job(
    job_id: Id,
    action: Annotated[JobAction, Path(description="what to do")],
    context: Ctx,
    principal: User,
    given: ReasonIn | None = None,
) -> Answer:
    """Cancel, hold, release or requeue a job."""
    act = acting(context, principal, action, reason=given.reason if given else "")
    return await _one(context, principal, job_id, act)


@router.patch(
    "/jobs/{job_id}",
    summary="Change a job",
    operation_id="change_job",
    responses={200: {"model": ActedOut}},
)
async def change_job(job_id: Id, change: ChangeIn, context: Ctx, principal: User) -> Answer:
    """Change weight or deadline of a job that has not ended."""
    return await _one(context, principal, job_id, _changing(context, principal, change))


@router.post(
    "/jobs:act",
    summary="Act on many jobs",
    operation_id="act_on_jobs",
    responses={200: {"model": BulkOut}},
)
async def act_on_jobs(what: ActIn, context: Ctx, principal: User) -> Answer:
    """Cancel, hold, release or requeue jobs by id or by selector.

    A selector without `status` means jobs that have not ended. A dry run returns the outcome for
    each job and does nothing.
    """
    act = acting(context, principal, what.action, reason=what.reason, dry_run=what.dry_run)
    return await _many(context, principal, what, act)


@router.patch(
    "/jobs",
    summary="Change many jobs",
    operation_id="change_jobs",
    responses={200: {"model": BulkOut}},
)
async def change_jobs(what: BulkChangeIn, context: Ctx, principal: User) -> Answer:
    """Change weight or deadline of jobs by id or by selector."""
    return await _many(context, principal, what, _changing(context, principal, what))


def acting(
    context: Context, principal: Principal, action: JobAction, *, reason: str, dry_run: bool = False
) -> Act:
    """Return the function that acts on jobs for a caller."""

    async def act(ids: Sequence[str]) -> tuple[Acted, ...]:
        return await context.service.act(
            ids, action, actor=principal.subject, reason=reason, dry_run=dry_run
        )

    return act


def _changing(context: Context, principal: Principal, change: ChangeIn) -> Act:
    async def act(ids: Sequence[str]) -> tuple[Acted, ...]:
        return await context.service.change(
            ids,
            actor=principal.subject,
            weight=change.weight,
            deadline_s=change.deadline_s,
            clear_deadline=change.clears_deadline,
        )

    return act


async def _one(context: Context, principal: Principal, job_id: str, act: Act) -> Answer:
    await visible_job(context, principal, job_id)
    (result,) = await act([job_id])
    if result.error:
        raise ProblemError(_STATUS.get(result.code, 409), result.error, code=result.code)
    return Answer(result)


async def _many(context: Context, principal: Principal, what: Chosen, act: Act) -> Answer:
    truncated, unseen = False, []
    if what.selector is not None:
        ids, truncated = await selected_ids(context, principal, what.selector)
    else:
        asked = list(dict.fromkeys(what.ids or ()))
        visible = await visible_ids(context, principal, asked)
        ids = [job_id for job_id in asked if job_id in visible]
        unseen = [_unknown(job_id) for job_id in asked if job_id not in visible]
    results = await in_pieces(ids, act)
    return Answer(_bulk([*results, *unseen], truncated=truncated))


async def in_pieces(ids: Sequence[str], act: Act) -> list[Acted]:
    """Act on many jobs, some at a time; between them the service does other work."""
    results: list[Acted] = []
    for start in range(0, len(ids), CHUNK):
        results += await act(ids[start : start + CHUNK])
    return results


def _unknown(job_id: str) -> Acted:
    return Acted(job_id=job_id, error=f"there is no job '{job_id}'", code="not_found")


def _bulk(results: Sequence[Acted], *, truncated: bool) -> dict[str, Any]:
    return {
        "matched": len(results),
        "changed": sum(r.changed for r in results),
        "failed": sum(bool(r.error) for r in results),
        "truncated": truncated,
        "jobs": results,
    }
