"""Find the jobs that a caller may see, and the jobs of a selector."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from api.jobs.conversions import attempt_answer, job_answer, spec_answer
from api.problems import not_found
from api.threads import in_thread
from scheduler.domain.jobs.job import JobStatus
from scheduler.store.filters import FILTERS, JobFilter
from scheduler.store.queries import MAX_LIMIT, HistoryQuery, JobQuery
from scheduler.views.history_kinds import EventKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from api.auth.roles import Principal
    from api.context import Context
    from api.schemas.jobs import SelectorIn
    from scheduler.domain.rows import JobRow
    from scheduler.store.protocol import Store
    from scheduler.store.queries import AttemptQuery, JobPage

    #: Job -> the times of its answer.
    Times = Mapping[str, Mapping[str, Any]]

#: Jobs with a cached project.
MOST_PROJECTS = 100_000
#: Lines of history that come with another status of a job.
_CHANGES_OF_STATUS = (
    EventKind.JOB_SUBMITTED,
    EventKind.JOB_HELD,
    EventKind.JOB_RELEASED,
    EventKind.JOB_REQUEUED,
    EventKind.LEASE_GRANTED,
    EventKind.LEASE_ENDED,
)
#: Jobs that have not ended.
ACTIVE = (JobStatus.WAITING, JobStatus.RUNNING, JobStatus.HELD)


async def visible_job(context: Context, principal: Principal, job_id: str) -> JobRow:
    """Return a job of the caller's projects.

    Raises:
        ProblemError: no job has that id, or it is another project's.
    """
    row = await in_thread(context.store.job, job_id)
    if row is None or not principal.sees(row.project):
        raise not_found("job", job_id)
    return row


async def visible_ids(
    context: Context, principal: Principal, job_ids: Sequence[str]
) -> frozenset[str]:
    """Return those of some job ids that exist for the caller; all if it is not confined."""
    if not principal.projects or not job_ids:
        return frozenset(job_ids)
    return await in_thread(_in_projects, context.store, principal, tuple(job_ids))


def _in_projects(store: Store, principal: Principal, job_ids: tuple[str, ...]) -> frozenset[str]:
    rows = (store.job(job_id) for job_id in job_ids)
    return frozenset(row.job_id for row in rows if row and principal.sees(row.project))


def projects_of(context: Context, job_ids: Iterable[str]) -> dict[str, str]:
    """Return job id -> project of the jobs that exist; it blocks, and may run in several threads.

    A job never moves, so the projects are kept.
    """
    known, wanted = context.projects, frozenset(job_ids)
    found = {job_id: own for job_id in wanted if (own := known.get(job_id)) is not None}
    if missing := wanted - found.keys():
        found |= context.store.projects_of(missing)
    if len(known) > MOST_PROJECTS:
        known.clear()
    known.update(found)
    return found


async def attempts_page(
    context: Context, principal: Principal, query: AttemptQuery
) -> dict[str, Any]:
    """Return a page of leases of the caller's projects, and the lease id before the next page."""
    query = replace(query, projects=tuple(sorted(principal.projects)))
    rows = await in_thread(context.store.newest_attempts, query)
    return {
        "attempts": [attempt_answer(row) for row in rows],
        "next_before": rows[-1].lease_id if len(rows) == query.limit else None,
    }


async def page_of_jobs(
    context: Context, query: JobQuery
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the jobs of a page as answers, and the cursor of the next page."""
    page, times = await in_thread(_page, context.store, query, context.now())
    live = context.service.live([row.job_id for row in page.rows if row.finished_s is None])
    jobs = [job_answer(row, live.get(row.job_id), **times[row.job_id]) for row in page.rows]
    return jobs, page.next_cursor


def _page(store: Store, query: JobQuery, now_s: float) -> tuple[JobPage, Times]:
    page = store.jobs(query)
    return page, _times(store, page.rows, now_s)


def _times(store: Store, rows: Iterable[JobRow], now_s: float) -> Times:
    """Return for each job how long it has held workers, and since when it has its status."""
    rows = list(rows)
    ran = store.run_times([row.job_id for row in rows if row.attempts], now_s=now_s)
    active = [row.job_id for row in rows if row.finished_s is None]
    since = store.newest_times(active, _CHANGES_OF_STATUS)
    return {
        row.job_id: {"ran_s": ran.get(row.job_id, 0.0), "since_s": since.get(row.job_id)}
        for row in rows
    }


async def answer_of_job(context: Context, row: JobRow, principal: Principal) -> dict[str, Any]:
    """Return a job's answer with its specification."""
    times = await in_thread(_times, context.store, [row], context.now())
    live = context.service.live([row.job_id]).get(row.job_id)
    return job_answer(row, live, **times[row.job_id], spec=spec_answer(row, principal))


async def attempts_of(context: Context, job_id: str) -> list[dict[str, Any]]:
    """Return the leases of a job as answers, oldest first, and how their pods were launched."""
    attempts = await in_thread(_attempts, context.store, job_id)
    live = context.service.live([job_id]).get(job_id)
    for attempt in attempts:  # the stored row of a live lease has only its initial values
        if live is not None and attempt["lease_id"] == live.lease_id:
            attempt["steps_done"] = live.steps_done
    return attempts


def _attempts(store: Store, job_id: str) -> list[dict[str, Any]]:
    query = HistoryQuery(
        subject_kind="job", subject=job_id, kinds=("lease_launched",), limit=MAX_LIMIT
    )
    launches: dict[int, list[Any]] = {}
    for line in store.history(query):
        launches.setdefault(line.data["lease"], []).append(line)
    return [attempt_answer(row, launches.get(row.lease_id, ())) for row in store.attempts(job_id)]


def visible_projects(principal: Principal, asked: Sequence[str]) -> tuple[str, ...] | None:
    """Return the projects to ask the store for: empty for all, None if nothing can be visible."""
    if not principal.projects:
        return tuple(asked)
    allowed = [p for p in asked if p in principal.projects] if asked else principal.projects
    return tuple(sorted(allowed)) or None


async def own_active_ids(context: Context, principal: Principal) -> frozenset[str] | None:
    """Return the active jobs of the caller's projects; None if it sees all."""
    projects = visible_projects(principal, ())
    if not projects:
        return None
    where = JobFilter(statuses=ACTIVE, projects=projects)
    ids, _ = await in_thread(_page_ids, context.store, where, 10**9)
    return frozenset(ids)


async def visible_type(context: Context, principal: Principal) -> Callable[[str], bool]:
    """Return whether the caller may know a job type.

    A job without a type has ``PROJECT/NAME``, which names a job. Types with a slash are visible if
    they begin with a project of the caller, or active jobs of its projects have them.
    """
    projects = visible_projects(principal, ())
    if not projects:
        return lambda _job_type: True
    where = JobFilter(statuses=ACTIVE, projects=projects)
    own = await in_thread(_job_types, context.store, where)
    return lambda name: "/" not in name or name in own or principal.sees(name.partition("/")[0])


def values_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return filters by the attributes of ``JobFilter``, from those of a request by name."""
    return {
        one.attribute: tuple(given[one.name]) if one.most else given[one.name] or ""
        for one in FILTERS
        if one.name in given
    }


async def selected_ids(
    context: Context, principal: Principal, selector: SelectorIn
) -> tuple[list[str], bool]:
    """Return the jobs that a selector means, oldest first, and whether there are more.

    At most ``max_selected`` are returned. They are collected before any is changed, so that a
    change does not move the pages.
    """
    projects = visible_projects(principal, selector.project)
    if projects is None:
        return [], False
    given = values_of({one.name: getattr(selector, one.name) for one in FILTERS if one.selects})
    given |= {"projects": projects, "labels": selector.labels}
    return await ids_of(context, JobFilter(**{k: v for k, v in given.items() if v}))


async def ids_of(context: Context, where: JobFilter) -> tuple[list[str], bool]:
    """Return the jobs that a filter means, as ``selected_ids``; without statuses, active ones."""
    where = where if where.statuses else replace(where, statuses=ACTIVE)
    return await in_thread(_page_ids, context.store, where, context.settings.max_selected)


def _page_ids(store: Store, where: JobFilter, most: int) -> tuple[list[str], bool]:
    ids = store.job_ids(where, most=most + 1)
    return list(ids[:most]), len(ids) > most


def _job_types(store: Store, where: JobFilter) -> frozenset[str]:
    return frozenset(row.job_type for row in _rows(store, where))


def _rows(store: Store, where: JobFilter) -> Iterator[JobRow]:
    """Yield jobs, oldest first, read page by page."""
    cursor: str | None = None
    while True:
        query = JobQuery(where=where, descending=False, limit=MAX_LIMIT, cursor=cursor)
        page = store.jobs(query)
        yield from page.rows
        cursor = page.next_cursor
        if cursor is None:
            return
