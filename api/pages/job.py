"""The view of one job: why it waits, its attempts, its output, its specification, and actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.responses import RedirectResponse

from api.auth.roles import Role
from api.context import context_of
from api.jobs.conversions import event_answer, explanation_answer
from api.jobs.selection import answer_of_job, attempts_of, visible_job
from api.pages.rendering import render, write_json
from api.pages.routing import action, page, parse, read_reason, read_word
from api.routes.jobs_act import act_on_job
from api.routes.logs import read_log
from api.schemas.jobs import ReasonIn
from api.threads import in_thread
from scheduler.control.facts.requests import JobAction
from scheduler.domain.jobs.job import JobStatus
from scheduler.logs.output import LogWanted
from scheduler.logs.terminal_text import TerminalText
from scheduler.store.queries import HistoryQuery

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal
    from api.context import Context

#: Bytes of output at the end of each stream that the page itself shows, and the most streams.
TAIL_BYTES: Final = 8192
MOST_STREAMS: Final = 4
#: Characters of a specification that the page shows.
MOST_SPEC: Final = 32_768
#: Lines of history and attempts that the page itself shows.
_LINES: Final = 50
#: Status of a job -> actions that change it.
_ACTIONS: Final = {
    JobStatus.WAITING: (JobAction.HOLD, JobAction.CANCEL),
    JobStatus.RUNNING: (JobAction.REQUEUE, JobAction.HOLD, JobAction.CANCEL),
    JobStatus.HELD: (JobAction.RELEASE, JobAction.CANCEL),
    JobStatus.COMPLETED: (),
    JobStatus.CANCELLED: (JobAction.REQUEUE,),
    JobStatus.FAILED: (JobAction.REQUEUE,),
    JobStatus.REFUSED: (JobAction.REQUEUE,),
}
#: Action -> its effect on a job, in words.
EFFECTS: Final = {
    JobAction.HOLD: "A held job gives its workers back and waits until it is released.",
    JobAction.RELEASE: "A released job may run again.",
    JobAction.REQUEUE: "A requeued job stops, if it runs, and waits for workers again.",
    JobAction.CANCEL: "A cancelled job ends. Its output and its checkpoints stay.",
}


async def show_job(request: Request, principal: Principal) -> Response:
    """Show a job."""
    context, job_id = context_of(request), request.path_params["job_id"]
    row = await visible_job(context, principal, job_id)
    job = await answer_of_job(context, row, principal)
    explanation = await context.service.explain(row, forecast=False)
    attempts = await attempts_of(context, job_id)
    lines = await in_thread(
        context.store.history,
        HistoryQuery(subject_kind="job", subject=job_id, descending=True, limit=_LINES),
    )
    log, streams = await _tail(context, job_id)
    may_act = principal.has(Role.USER)
    return render(
        request,
        "job.html",
        view="Jobs",
        job=job,
        why=explanation_answer(explanation, principal),
        attempts=attempts[-_LINES:][::-1],
        older=max(len(attempts) - _LINES, 0),
        events=[event_answer(line, principal) for line in lines],
        log=log,
        streams=streams,
        spec=write_json(job["spec"]),
        most_spec=MOST_SPEC,
        actions=_ACTIONS[JobStatus(job["status"])] if may_act else (),
    )


async def _tail(context: Context, job_id: str) -> tuple[list[dict[str, object]], int]:
    """Return the end of the output of the newest attempt, and how many streams it has.

    There is a part for each stream of each node, for the first ``MOST_STREAMS`` of them.
    """
    if not context.service.health().leading:
        return [], 0
    found = await context.service.read_log(job_id, LogWanted(tail_bytes=TAIL_BYTES))
    parts: dict[tuple[str, str], tuple[int, list[bytes]]] = {}
    async for chunk in found.pieces:
        key = chunk.node, chunk.stream
        if key not in parts and len(parts) == MOST_STREAMS:
            break
        parts.setdefault(key, (chunk.offset, []))[1].append(chunk.data)
    shown: list[dict[str, object]] = [
        {"node": node, "stream": stream, "begins": begins, "text": readable(b"".join(pieces))}
        for (node, stream), (begins, pieces) in parts.items()
    ]
    return shown, len(found.first)


def readable(data: bytes) -> str:
    """Return output as text without terminal codes."""
    reader = TerminalText(colours=False)
    return reader.feed(data) + reader.end()


async def show_forecast(request: Request, principal: Principal) -> Response:
    """Show when a job will start and end, by a replay of the cluster from now on."""
    context, job_id = context_of(request), request.path_params["job_id"]
    row = await visible_job(context, principal, job_id)
    explanation = await context.service.explain(row)
    return render(request, "forecast.html", view="Jobs", job_id=job_id, why=explanation)


async def show_log(request: Request, principal: Principal) -> Response:
    """Return the whole output of all attempts as plain text, for reading or keeping."""
    return await read_log(
        request,
        job_id=request.path_params["job_id"],
        context=context_of(request),
        principal=principal,
        attempts="all",
    )


async def ask(request: Request, principal: Principal) -> Response:
    """Say what an action would do, and ask for a reason."""
    job_id, word = request.path_params["job_id"], _action(request)
    await visible_job(context_of(request), principal, job_id)
    return render(
        request,
        "confirm.html",
        view="Jobs",
        verb=word.value,
        what=f"job {job_id}",
        effect=EFFECTS[word],
        back=f"../{job_id}",
    )


async def act(request: Request, principal: Principal, form: dict[str, str]) -> Response:
    """Cancel, hold, release or requeue a job, and show it."""
    job_id, given = request.path_params["job_id"], parse(ReasonIn, read_reason(form))
    await act_on_job(job_id, _action(request), context_of(request), principal, given)
    return RedirectResponse(f"../{quote(job_id)}", 303)


def _action(request: Request) -> JobAction:
    return read_word(JobAction, "action", request.path_params["action"])


ROUTES: Final = (
    page("/jobs/{job_id}", show_job),
    page("/jobs/{job_id}/log.txt", show_log),
    page("/jobs/{job_id}/forecast", show_forecast),
    page("/jobs/{job_id}/{action}", ask, role=Role.USER),
    action("/jobs/{job_id}/{action}", act),
)
