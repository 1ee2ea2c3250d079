"""Submit jobs: one, an array, or a batch of independent jobs."""

import asyncio
import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request
from pydantic import ValidationError

from api.access import User
from api.answers import Answer
from api.auth.roles import Principal
from api.context import Context, context_of
from api.edge.privacy import is_private
from api.jobs.batches import Made, count_jobs, make_submissions, read_jobs
from api.jobs.pod_preview import pod_preview
from api.jobs.selection import visible_ids
from api.problems import FieldProblem, ProblemError, fault_of, field_problems, invalid_request
from api.routing import StrictRoute
from api.schemas.fields import ClientId
from api.schemas.job_answers import BatchFitOut, BatchOut, FitOut, SubmittedOut
from api.schemas.jobs import JobIn, LooseBatch
from api.settings import RateLimit
from api.threads import in_thread
from scheduler.control.facts.requests import Fit, Submission, Submitted
from scheduler.control.facts.specs import missed_deadline
from scheduler.domain.jobs.spec import JobSpec
from scheduler.errors import AdmissionError

#: Jobs that a caller tries with a replay: a few at once, then one every five seconds.
TRIALS: Final = RateLimit(per_s=0.2, burst=5)

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=StrictRoute)

#: A job up to this size is read in the event loop: passing it to a thread takes longer.
_SMALL_BYTES = 8192
_STATUS = {"conflict": 409, "quota": 422, "refused": 422, "invalid": 422, "unavailable": 503}
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

* One job: 201 with its id; 200 if its `client_id` (or else the header `Idempotency-Key`) was
  known already and the request is the same; 409 if it was known for another request; 422 if
  the job can never run, with `type` `urn:leasehold:problem:refused` (or `quota`).
* A job with `array`, and a batch: one item per job, in order; 200, or 207 if some have an
  `error`. An invalid job does not spoil the others.
* With `dry_run=true` nothing is changed: the answer says whether and where the job could run.

`deadline_in_s` counts from the receipt of the request, and so does not take part in comparing it
with an earlier one under the same id.
"""


@router.post(
    "/jobs",
    summary="Submit jobs",
    operation_id="submit_jobs",
    description=_DESCRIPTION,
    status_code=201,
    openapi_extra=_BODY,
    responses={
        201: {"model": SubmittedOut, "description": "The job was accepted"},
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
    principal: User,
    dry_run: Annotated[
        bool, Query(description="change nothing; return where it could run")
    ] = False,
    forecast: Annotated[
        bool, Query(description="with dry_run, of one job: also when it would start and complete")
    ] = False,
    idempotency_key: Annotated[ClientId | None, Header()] = None,
) -> Answer:
    """Take jobs in."""
    if forecast and not dry_run:
        problem = "is possible together with dry_run=true"
        raise invalid_request([FieldProblem(field="forecast", value=forecast, problem=problem)])
    body = await _body(request)
    small = len(await request.body()) <= _SMALL_BYTES
    document, status = await take_jobs(
        request,
        principal,
        body,
        small=small,
        dry_run=dry_run,
        forecast=forecast,
        key=idempotency_key or "",
    )
    return Answer(document, status)


async def take_jobs(
    request: Request,
    principal: Principal,
    body: Any,
    *,
    small: bool = False,
    dry_run: bool,
    forecast: bool = False,
    key: str = "",
) -> tuple[dict[str, Any], int]:
    """Take jobs in, or try them.

    Args:
        request: in which they came.
        principal: the caller.
        body: a job, or a batch of them, as for the route.
        small: whether it has few bytes.
        dry_run: change nothing; return where they could run.
        forecast: if it is one job that is tried, also return when it would start and complete.
        key: an id of the request, by which a repeated one is recognised; may be empty.

    Returns:
        The document of the answer, and its status.

    Raises:
        ProblemError: the body cannot be read, or its only job is refused.
    """
    context = context_of(request)
    _check_privacy(request, body)
    many = isinstance(body, dict) and "jobs" in body
    items = _validated_batch(body) if many else [body]
    count_jobs(
        items,
        most_jobs=context.settings.max_batch,
        max_body_bytes=context.settings.max_body_bytes,
    )
    keys = None if dry_run else _keys(items, key, many=many)
    aside = many or not small or not _is_plain(items[0])
    made = await _made(context, principal, items, keys, aside=aside)
    if many:
        alone = forecast and len(made) == 1
        return await _batch(context, principal, made, dry_run=dry_run, forecast=alone)
    (one,) = made
    if isinstance(one, ProblemError):
        raise one
    if dry_run:
        return await _tried(context, principal, one, forecast=forecast), 200
    if one.job.array is not None:
        return await _batch(context, principal, made, dry_run=False)
    return await _single(context, principal, one)


def _check_privacy(request: Request, body: Any) -> None:
    """Refuse secrets that came over a readable connection; they must count as leaked."""
    jobs = body.get("jobs") if isinstance(body, dict) else None
    items = jobs if isinstance(jobs, list) else [body]
    given = any(isinstance(item, dict) and item.get("secret_env") for item in items)
    if given and not is_private(request.scope):
        raise ProblemError(
            422,
            "secret_env was sent over plain HTTP, which can be read on the way: treat these values "
            "as known to others, and send new ones over https:// (server.tls_cert, or a proxy in "
            "server.trusted_proxies), or on the scheduler's own machine",
            code="refused",
        )


async def _body(request: Request) -> Any:
    try:
        return await request.json()
    except ValueError as error:
        problem = FieldProblem(field="", value=None, problem=f"is not JSON: {error}")
        raise invalid_request([problem]) from error


def _validated_batch(body: dict[str, Any]) -> list[Any]:
    try:
        return LooseBatch.model_validate(body).jobs
    except ValidationError as error:
        raise invalid_request(field_problems(error.errors(include_url=False))) from error


def _keys(items: Sequence[Any], key: str, *, many: bool) -> list[str]:
    """Return the client id of each job under the key of the request; an array is a batch of one."""
    if many or (isinstance(items[0], dict) and items[0].get("array") is not None):
        return [f"{key}/{index}" if key else "" for index in range(len(items))]
    return [key]


def _is_plain(item: Any) -> bool:
    """Return whether a job has no array, and no expression or model, which are slow to read."""
    slow = ("array", "progress_regex", "model")
    return isinstance(item, dict) and not any(item.get(name) for name in slow)


async def _made(
    context: Context,
    principal: Principal,
    items: Sequence[Any],
    keys: Sequence[str] | None,
    *,
    aside: bool,
) -> list[Made | ProblemError]:
    """Read and expand jobs; in a thread if that may take long."""
    found = (
        await context.heavily(read_jobs, items, principal) if aside else read_jobs(items, principal)
    )
    others = {name for job in found if isinstance(job, JobIn) for name in job.depends_on}
    visible = await visible_ids(context, principal, sorted(others))
    now_s = context.now()
    made = partial(
        make_submissions, keys=keys, now_s=now_s, allows=context.settings.template_allows
    )
    jobs = (
        await context.heavily(made, found, visible, principal)
        if aside
        else made(found, visible, principal)
    )
    wanted = {(m.spec.project, m.spec.upload) for m in jobs if isinstance(m, Made)}
    if wanted := {one for one in wanted if one[1]}:
        absent = await in_thread(_absent, context, wanted)
        jobs = [_with_code(one, absent) if isinstance(one, Made) else one for one in jobs]
    return jobs


def _absent(context: Context, wanted: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return missing uploads, as (project, hash); the others are kept for a while."""
    use = partial(context.store.use_upload, now_s=context.now())
    return {one for one in sorted(wanted) if use(*one) is None}


def _with_code(made: Made, absent: Collection[tuple[str, str]]) -> Made | ProblemError:
    project, digest = made.spec.project, made.spec.upload
    if (project, digest) not in absent:
        return made
    problem = f"project '{project}' has no such upload; send it first (PUT /v1/uploads/HASH)"
    return invalid_request([FieldProblem(field="upload", value=digest, problem=problem)])


async def _single(context: Context, principal: Principal, made: Made) -> tuple[dict[str, Any], int]:
    (result,) = await context.service.submit(made.submissions, actor=principal.subject)
    if error := _refusal(result):
        raise error
    status = 201 if result.created else 200
    return {"job_id": result.job_id, "created": result.created}, status


async def _batch(
    context: Context,
    principal: Principal,
    made: Sequence[Made | ProblemError],
    *,
    dry_run: bool,
    forecast: bool = False,
) -> tuple[dict[str, Any], int]:
    """Answer per item; all valid jobs are submitted together."""
    answers: list[dict[str, Any]] = []
    taken: list[tuple[dict[str, Any], Submission]] = []
    for index, item in enumerate(made):
        if isinstance(item, ProblemError):
            answers.append(_failed(index, item, dry_run=dry_run))
        elif dry_run:
            await asyncio.sleep(0)  # a fit takes a fraction of a millisecond: let other tasks run
            answers.append(await _fitting(context, principal, index, item, forecast=forecast))
        else:
            for submission in item.submissions:
                answers.append(_item(index, submission.spec.array_index))
                taken.append((answers[-1], submission))
    if taken:
        results = await context.service.submit([s for _, s in taken], actor=principal.subject)
        for (answer, _), result in zip(taken, results, strict=True):
            answer.update(job_id=result.job_id, created=result.created)
            if error := _refusal(result):
                answer["error"] = _document(error)
    return {"jobs": answers}, 207 if any(a["error"] for a in answers) else 200


async def _fitting(
    context: Context, principal: Principal, index: int, made: Made, *, forecast: bool
) -> dict[str, Any]:
    try:
        fit = await _tried(context, principal, made, forecast=forecast)
    except ProblemError as error:
        return _failed(index, error, dry_run=True)
    return {"index": index, "fit": fit, "error": None}


async def _tried(
    context: Context, principal: Principal, made: Made, *, forecast: bool = False
) -> dict[str, Any]:
    """Return whether a job could run, and its pod.

    Raises:
        ProblemError: its submission would be refused.
    """
    if late := missed_deadline(made.spec.deadline_s, now_s=context.now()):
        raise ProblemError(422, late)
    try:
        why_not = _why_no_forecast(context, principal, made) if forecast else ""
        asks = forecast and not why_not
        fit = await context.service.fit(made.spec, owner=principal.subject, forecast=asks)
    except AdmissionError as error:
        raise ProblemError(422, str(error), code="refused") from None
    if forecast and not fit.forecast:
        fit = replace(fit, forecast=f"no forecast: {why_not or 'it cannot run'}")
    return _with_pod(fit, made.spec, context.settings.template_allows)


def _why_no_forecast(context: Context, principal: Principal, made: Made) -> str:
    """Return why a job is tried without a replay; empty if it is tried with one."""
    if made.job.array is not None:
        return "the elements of an array begin one by one"
    if made.job.held:
        return "it is held"
    wait_s = context.buckets.take(f"trial {principal.token_id or principal.subject}", TRIALS)
    return f"you have tried several jobs; try again in {math.ceil(wait_s)} s" if wait_s else ""


def _with_pod(fit: Fit, spec: JobSpec, allows: Collection[str]) -> dict[str, Any]:
    """Return whether a job could run, and its pod."""
    types = [name for option in fit.configurations for name in option.workers]
    shown = partial(pod_preview, spec, allows=allows)
    pod = shown(worker_type=types[0]) if types else shown()
    return asdict(fit) | {"pod": pod}


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
