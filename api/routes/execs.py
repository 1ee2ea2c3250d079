"""Commands beside jobs: users begin, read and end them; agents report them."""

import base64
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from msgspec import Meta
from starlette.responses import Response
from starlette.routing import Route

from api.access import Ctx, User
from api.answers import Answer
from api.auth.roles import Principal
from api.context import Context, context_of
from api.jobs.selection import visible_job
from api.patterns import EXEC_ID
from api.problems import ProblemError
from api.routes.agents import agent_json, agent_node
from api.routing import StrictRoute
from api.schemas.execs import ExecIn, ExecOut, ExecOutputOut
from api.schemas.fields import JobId
from scheduler.protocol import bounds, fields
from scheduler.protocol.reading import read_as
from scheduler.runtime.execs import ExecOutput

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=StrictRoute)

Id = Annotated[JobId, Path(description="job id")]
ExecId = Annotated[str, Path(pattern=EXEC_ID, description="id of the command")]


@router.post(
    "/jobs/{job_id}/exec",
    summary="Run a command inside a running job",
    operation_id="begin_exec",
    status_code=201,
    responses={201: {"model": ExecOut}},
)
async def begin_exec(job_id: Id, given: ExecIn, context: Ctx, principal: User) -> Answer:
    """Have a command run as the job does: its user, its folders, its variables, its limits.

    For the job's owner and administrators. It ends with the job's lease, when its output is not
    read for a minute, and when the leading scheduler changes.
    """
    await _check(context, principal, job_id)
    begun = await context.service.execs.begin(
        job_id,
        given.command,
        stdin=given.stdin,
        rank=given.rank,
        node=given.node,
        most_s=given.timeout_s,
        actor=principal.subject,
    )
    return Answer({"exec_id": begun.exec_id, "node": begun.node}, 201)


@router.get(
    "/jobs/{job_id}/exec/{exec_id}",
    summary="Read a command's output",
    operation_id="read_exec",
    responses={200: {"model": ExecOutputOut}},
)
async def read_exec(
    *,
    job_id: Id,
    exec_id: ExecId,
    context: Ctx,
    principal: User,
    after: Annotated[int, Query(ge=0, le=2**31, description="number of the first piece")] = 0,
    wait_s: Annotated[float, Query(ge=0, le=30, description="how long to wait for one")] = 0.0,
) -> Answer:
    """Return output from a piece on, as soon as there is any; pieces before it are forgotten."""
    await _check(context, principal, job_id)
    work = context.service.execs.read(job_id, exec_id, after=after, wait_s=wait_s)
    found = await context.unless_stopping(work, principal)
    if found is None:
        raise ProblemError(503, "this scheduler is going down", headers={"Retry-After": "1"})
    shown = [
        {"stream": piece.stream, "data": base64.b64encode(piece.data).decode()}
        for piece in found.pieces
    ]
    return Answer(
        {
            "pieces": shown,
            "next": found.first + len(shown),
            "done": found.done_s is not None,
            "exit_code": found.exit_code,
            "problem": found.problem,
        }
    )


@router.delete(
    "/jobs/{job_id}/exec/{exec_id}",
    summary="End a command",
    operation_id="end_exec",
    status_code=204,
    response_class=Response,
)
async def end_exec(job_id: Id, exec_id: ExecId, context: Ctx, principal: User) -> Response:
    """End a command; its output so far can still be read."""
    await _check(context, principal, job_id)
    context.service.execs.stop(job_id, exec_id)
    return Response(status_code=204)


async def _check(context: Context, principal: Principal, job_id: str) -> None:
    """Refuse commands beside another person's job: they can see all that the job can.

    Raises:
        ProblemError: the job is another person's.
    """
    row = await visible_job(context, principal, job_id)
    if not principal.knows_values_of(row.owner):
        raise ProblemError(
            403,
            f"job '{job_id}' is of '{row.owner}'; only they and administrators may run commands "
            "beside it",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What a node says of a command."""

    number: fields.Count
    pieces: Annotated[tuple[ExecOutput, ...], Meta(max_length=bounds.MOST_ITEMS)]
    exit_code: fields.Count | None = None
    problem: fields.Argument = ""


async def tell_exec(request: Request) -> Response:
    """Take in what a node says of a command."""
    node, context = agent_node(request), context_of(request)
    told = read_as(_Told, await agent_json(request))
    stop, room = context.service.execs.heard(
        node,
        request.path_params["exec_id"],
        number=told.number,
        pieces=told.pieces,
        exit_code=told.exit_code,
        problem=told.problem,
    )
    return Answer({"stop": stop, "room": room})


def agent_routes() -> list[Route]:
    """Return the agents' routes."""
    return [Route("/v1/agent/execs/{exec_id}", tell_exec, methods=["POST"])]
