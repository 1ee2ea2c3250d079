"""The view of one job: why it waits, its attempts, its output, its specification, and actions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from starlette.responses import RedirectResponse

from api.auth.roles import Role
from api.context import context_of
from api.jobs.conversions import event_answer, explanation_answer
from api.jobs.selection import ACTIVE, answer_of_job, attempts_of, visible_job
from api.pages.copying import as_asked, as_command, as_curl, write_yaml
from api.pages.model_forms import fields_of, read_values
from api.pages.output import readable
from api.pages.rendering import render
from api.pages.routing import action, page, parse, problem_of_form, read_reason, read_word
from api.problems import ProblemError
from api.routes.jobs_act import act_on_job, change_job
from api.routes.logs import read_log
from api.schemas.jobs import ChangeIn, ReasonIn
from api.threads import in_thread
from scheduler.control.facts.requests import JobAction
from scheduler.control.projects.budgets import cost_usd
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.throughputs.ways import Source
from scheduler.errors import LeaseholdError
from scheduler.logs.output import LogWanted
from scheduler.store.queries import HistoryQuery
from scheduler.store.usage import in_us

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal
    from api.context import Context
    from api.problems import PublicError
    from scheduler.domain.throughputs.ways import Way

#: Bytes of output at the end of each stream that the page itself shows, and the most streams.
TAIL_BYTES: Final = 8192
MOST_STREAMS: Final = 4
#: Characters of a specification that the page shows.
MOST_SPEC: Final = 32_768
#: Lines of history and attempts that the page itself shows.
_LINES: Final = 50
#: Ways to run that the page shows.
MOST_WAYS: Final = 50
#: Least width of an attempt on the time line, in percent.
_LEAST_WIDTH: Final = 0.4
_WORDS: Final = {
    "weight": "its importance; empty: it stays",
    "deadline_s": "when it should be complete; empty: it has none",
}
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
    is_active, leads = job["status"] in ACTIVE, context.service.health().leading
    may_act = principal.has(Role.USER)
    return render(
        request,
        "job.html",
        view="Jobs",
        job=job,
        why=explanation_answer(explanation, principal),
        attempts=attempts[-_LINES:][::-1],
        bars=list(_bars(attempts[-_LINES:], context.now() if is_active else job["finished_s"])),
        cost_usd=_cost(attempts, context.service.cluster().prices, context.now()) if leads else 0.0,
        speeds=_speeds(await context.service.ways(row)),
        older=max(len(attempts) - _LINES, 0),
        events=[event_answer(line, principal) for line in lines],
        log=log,
        streams=streams,
        spec=await in_thread(write_yaml, as_asked(job["spec"])),
        most_spec=MOST_SPEC,
        actions=_ACTIONS[JobStatus(job["status"])] if may_act else (),
        may_change=may_act and is_active,
        command=as_command("job", job_id),
        curl=as_curl(f"jobs/{quote(job_id)}", {}),
    )


def _bars(
    attempts: Sequence[Mapping[str, Any]], until_s: float | None
) -> Iterator[tuple[Mapping[str, Any], float, float]]:
    """Yield attempts on a time line from the first one's start on: place and width in percent."""
    if not attempts or until_s is None:
        return
    begin_s = attempts[0]["start_s"]
    span_s = max(until_s - begin_s, 1e-3)
    for one in attempts:
        x = 100.0 * (one["start_s"] - begin_s) / span_s
        width = max(100.0 * _held_s(one, until_s) / span_s, _LEAST_WIDTH)
        yield one, round(min(max(x, 0.0), 100.0 - _LEAST_WIDTH), 2), round(width, 2)


def _cost(
    attempts: Sequence[Mapping[str, Any]], prices: Mapping[str, float], now_s: float
) -> float:
    """Return the cost of a job so far, in USD by present prices."""
    used = Counter[str]()
    for one in attempts:
        used[one["worker_type"]] += in_us(_held_s(one, now_s)) * len(one["workers"])
    return cost_usd(used, prices)


def _held_s(attempt: Mapping[str, Any], until_s: float) -> float:
    ended_s = until_s if attempt["ended_s"] is None else attempt["ended_s"]
    return float(max(ended_s - attempt["start_s"], 0.0))


def _speeds(ways: Iterable[Way]) -> list[tuple[Way, float | None]]:
    """Return the ways in which a job could run, the fastest first, with their standard errors."""
    found = [
        (
            way,
            None
            if way.estimate.source is Source.ASSUMED
            else way.estimate.steps_per_s * way.estimate.relative_deviation,
        )
        for way in ways
        if way.estimate.steps_per_s > 0.0
    ]
    found.sort(key=lambda pair: (-pair[0].estimate.steps_per_s, pair[0].worker_type))
    return found[:MOST_WAYS]


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


async def show_change(request: Request, principal: Principal) -> Response:
    """Show the form for weight and deadline."""
    row = await visible_job(context_of(request), principal, request.path_params["job_id"])
    values = {"weight": row.weight, "deadline_s": row.deadline_s}
    shown = {one.name: one.value for one in fields_of(ChangeIn, values)}
    return _show_change(request, values, was=shown)


async def change(request: Request, principal: Principal, form: dict[str, str]) -> Response:
    """Change weight or deadline, and show the job.

    A field that still is as the form showed it changes nothing: somebody else may have changed it.
    """
    context, job_id = context_of(request), request.path_params["job_id"]
    await visible_job(context, principal, job_id)
    changed = {name: text for name, text in form.items() if form.get(f"was.{name}") != text}
    try:
        if values := read_values(ChangeIn, changed, now_s=context.now()):
            await change_job(job_id, parse(ChangeIn, values), context, principal)
    except (LeaseholdError, ProblemError) as error:
        was = {name: form.get(f"was.{name}", "") for name in _WORDS}
        return _show_change(request, form, was=was, problem=problem_of_form(error))
    return RedirectResponse(f"../{quote(job_id)}", 303)


def _show_change(
    request: Request,
    values: Mapping[str, Any],
    *,
    was: Mapping[str, str],
    problem: PublicError | None = None,
) -> Response:
    job_id = request.path_params["job_id"]
    return render(
        request,
        "form.html",
        status=200 if problem is None else problem.status,
        view="Jobs",
        title="Weight and deadline",
        place=job_id,
        back=f"../{quote(job_id)}",
        button="Change",
        fields=fields_of(ChangeIn, values, words=_WORDS),
        was=was,
        note="",
        once="",
        problem=problem.document() if problem else None,
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
    page("/jobs/{job_id}/change", show_change, role=Role.USER),
    action("/jobs/{job_id}/change", change),
    page("/jobs/{job_id}/{action}", ask, role=Role.USER),
    action("/jobs/{job_id}/{action}", act),
)
