"""Submitting jobs: one, an array, or a batch in which each stands for itself."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from pydantic import ValidationError

from api.access import Ctx, User
from api.answers import Answer
from api.context import Context
from api.conversions import project_of, submissions, to_spec
from api.pod_preview import pod_preview
from api.problems import FieldProblem, ProblemError, fault_of, field_problems, invalid
from api.roles import Principal
from api.routing import StrictRoute
from api.schemas.answers import BatchFitOut, BatchOut, FitOut, SubmittedOut
from api.schemas.fields import ClientId
from api.schemas.jobs import JobIn, LooseBatch
from api.selection import visible_ids
from scheduler.domain.spec import JobSpec
from scheduler.runtime.protocol import Fit, Submission, Submitted
from scheduler.runtime.specs import missed_deadline

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=StrictRoute)

_STATUS = {"conflict": 409, "quota": 422, "refused": 422, "invalid": 422}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "anyOf": [
                        {"$ref": "#/components/schemas/JobIn"},
                        {"$ref": "#/components/schemas/BatchIn"},
                    ]
                }
            }
        },
    }
}
_DESCRIPTION = """
The body is one job, or `{"jobs": [...]}` for up to 1,000 of them.

* One job: 201 with its id; 200 where its `client_id` (or else the header `Idempotency-Key`) was
  known already and the request is the same; 409 where it was known for another request; 422 where
  the job can never run, with `type` `urn:leasehold:problem:refused` (or `quota`).
* A job with `array`, and a batch: one item per job, in order; 200, or 207 where some have an
  `error`. An invalid job does not spoil the others.
* With `dry_run=true` nothing is changed: the answer tells whether and where the job could run.

`deadline_in_s` counts from the receipt of the request, and so does not take part in comparing it
with an earlier one under the same id.
"""


class _Refused(Exception):  # noqa: N818 - carries a problem document out of the reading of one item
    def __init__(self, error: ProblemError) -> None:
        super().__init__(error.detail)
        self.error = error


@router.post(
    "/jobs",
    summary="Submit jobs",
    operation_id="submit_jobs",
    description=_DESCRIPTION,
    status_code=201,
    openapi_extra=_BODY,
    responses={
        201: {"model": SubmittedOut, "description": "The job was taken in"},
        200: {
            "model": SubmittedOut | BatchOut | FitOut | BatchFitOut,
            "description": "A known job, a batch, or a dry run",
        },
        207: {
            "model": BatchOut | BatchFitOut,
            "description": "Some jobs of the batch were refused",
        },
    },
)
async def submit_jobs(
    request: Request,
    context: Ctx,
    principal: User,
    dry_run: Annotated[bool, Query(description="change nothing, tell where it could run")] = False,
    idempotency_key: Annotated[ClientId | None, Header()] = None,
) -> Answer:
    """Take jobs in."""
    body = await _body(request)
    if isinstance(body, dict) and "jobs" in body:
        items = _validated_batch(body)
        return await _batch(context, principal, items, key=idempotency_key, dry_run=dry_run)
    try:
        job = await _checked(context, principal, body)
    except _Refused as refusal:
        raise refusal.error from None
    if dry_run:
        try:
            return Answer(await _tried(context, principal, job))
        except _Refused as refusal:
            raise refusal.error from None
    if job.array is not None:
        return await _batch(context, principal, [body], key=idempotency_key, dry_run=False)
    return await _single(context, principal, job, idempotency_key)


async def _body(request: Request) -> Any:
    try:
        return await request.json()
    except ValueError as error:
        problem = FieldProblem(field="", value=None, problem=f"is not JSON: {error}")
        raise invalid([problem]) from error


def _validated_batch(body: dict[str, Any]) -> list[Any]:
    try:
        return LooseBatch.model_validate(body).jobs
    except ValidationError as error:
        raise invalid(field_problems(error.errors(include_url=False))) from error


async def _single(context: Context, principal: Principal, job: JobIn, key: str | None) -> Answer:
    (submission,) = _submissions(context, principal, job, job.client_id or key or "")
    (result,) = await context.service.submit([submission], actor=principal.subject)
    if error := _refusal(result):
        raise error
    return Answer(
        {"job_id": result.job_id, "created": result.created}, 201 if result.created else 200
    )


async def _batch(
    context: Context, principal: Principal, items: Sequence[Any], *, key: str | None, dry_run: bool
) -> Answer:
    """Answer per item; what is valid is submitted in one piece."""
    answers: list[dict[str, Any]] = []
    taken: list[tuple[dict[str, Any], Submission]] = []
    for index, item in enumerate(items):
        if index % 100 == 99:
            await asyncio.sleep(0)  # a thousand jobs take some 50 ms: let others in between
        try:
            job = await _checked(context, principal, item)
            if dry_run:
                fit = await _tried(context, principal, job)
                answers.append({"index": index, "fit": fit, "error": None})
                continue
            own = job.client_id or (f"{key}/{index}" if key else "")
            for submission in _submissions(context, principal, job, own):
                answers.append(_item(index, submission.spec.array_index))
                taken.append((answers[-1], submission))
        except _Refused as refusal:
            answers.append(_failed(index, refusal.error, dry_run=dry_run))
    _check_size(context, len(taken))
    if taken:
        results = await context.service.submit([s for _, s in taken], actor=principal.subject)
        for (answer, _), result in zip(taken, results, strict=True):
            answer.update(job_id=result.job_id, created=result.created)
            if error := _refusal(result):
                answer["error"] = _document(error)
    return Answer({"jobs": answers}, 207 if any(a["error"] for a in answers) else 200)


def _check_size(context: Context, count: int) -> None:
    most = context.settings.max_batch
    if count > most:
        problem = FieldProblem(
            field="jobs", value=count, problem=f"with all arrays at most {most} jobs are taken"
        )
        raise invalid([problem])


async def _checked(context: Context, principal: Principal, item: Any) -> JobIn:
    """Return a job that is well formed, and that the caller may submit."""
    try:
        job = JobIn.model_validate(item)
    except ValidationError as error:
        raise _Refused(invalid(field_problems(error.errors(include_url=False)))) from error
    project = project_of(job, principal)
    if not principal.sees(project):
        names = ", ".join(sorted(principal.projects))
        raise _Refused(
            ProblemError(
                403,
                f"the token of '{principal.subject}' is confined to {names} and cannot submit to "
                f"project '{project}'; name one of its projects",
            )
        )
    visible = await visible_ids(context, principal, job.depends_on)
    problems = [
        FieldProblem(field=f"depends_on.{i}", value=job_id, problem="there is no such job")
        for i, job_id in enumerate(job.depends_on)
        if job_id not in visible
    ]
    if problems:
        raise _Refused(invalid(problems))
    try:
        pod_preview(_spec(context, principal, job))
    except ProblemError as error:
        raise _Refused(error) from error
    return job


async def _tried(context: Context, principal: Principal, job: JobIn) -> dict[str, Any]:
    """Return whether a job could run, and the pod that it would be."""
    spec = _spec(context, principal, job)
    if late := missed_deadline(spec.deadline_s, now_s=context.now()):
        raise _Refused(ProblemError(422, late))
    return _with_pod(await context.service.fit(spec), spec)


def _with_pod(fit: Fit, spec: JobSpec) -> dict[str, Any]:
    """Return whether a job could run, and the pod that it would be."""
    types = [option.worker_type for option in fit.configurations]
    pod = pod_preview(spec, worker_type=types[0]) if types else pod_preview(spec)
    return asdict(fit) | {"pod": pod}


def _spec(context: Context, principal: Principal, job: JobIn) -> JobSpec:
    return to_spec(job, project=project_of(job, principal), now_s=context.now())


def _submissions(
    context: Context, principal: Principal, job: JobIn, client_id: str
) -> list[Submission]:
    project = project_of(job, principal)
    return list(
        submissions(
            job,
            owner=principal.subject,
            project=project,
            client_id=client_id,
            now_s=context.now(),
        )
    )


def _refusal(result: Submitted) -> ProblemError | None:
    if not result.refusal:
        return None
    return ProblemError(_STATUS.get(result.code, 422), result.refusal, code=result.code)


def _item(index: int, array_index: int | None) -> dict[str, Any]:
    return {
        "index": index,
        "array_index": array_index,
        "job_id": "",
        "created": False,
        "error": None,
    }


def _failed(index: int, error: ProblemError, *, dry_run: bool) -> dict[str, Any]:
    document = _document(error)
    if dry_run:
        return {"index": index, "fit": None, "error": document}
    return _item(index, None) | {"error": document}


def _document(error: ProblemError) -> dict[str, Any]:
    fault = fault_of(error)
    assert fault is not None
    return fault.document("/v1/jobs")
