"""``leasehold jobs``: the list of jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leasehold.cli.display.output import (
    format_percent,
    print_json,
    print_remark,
    print_shown,
    table,
)
from leasehold.cli.jobspec.selection import Labels, requested_filters, with_filters
from leasehold.cli.reading.pairs import parse_pairs
from leasehold.cli.session.live_view import show_live
from leasehold.cli.session.remote import Json, remote
from scheduler.views.reason_words import reason_in_words
from scheduler.views.times import format_ago, format_span

if TYPE_CHECKING:
    from rich.text import Text

    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import Job, ListJobsQuery

#: Columns to drop, one after the other, if the terminal is too narrow.
_SPARE: Final = ("use", "share", "ran", "project", "workers", "name", "on")
_DEFAULT_PROJECT: Final = "default"
#: Most rows that can be asked for without ``--all``.
_PAGE: Final = 1000
_HEADINGS: Final = (
    "job", "~name", "project", "status", "why", "on", ">workers", ">use", ">progress", ">share",
    ">age", ">ran",
)  # fmt: skip


@remote
@with_filters
def jobs(
    service: ServiceClient,
    *,
    label: Labels = None,
    sort: Annotated[
        str,
        typer.Option(
            help="submitted, updated, name, weight, finished or deadline; - before it: descending."
        ),
    ] = "-submitted",
    limit: Annotated[int, typer.Option(min=1, max=_PAGE, help="Jobs at most.")] = 50,
    every: Annotated[bool, typer.Option("--all", help="Every job, however many.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again when it changes.")] = False,
    as_json: Json = False,
    **filters: Any,
) -> None:
    """List jobs, newest first."""
    query: Any = requested_filters(filters) | {
        "label": [f"{k}={v}" for k, v in parse_pairs(label or [], option="--label").items()],
        "sort": sort,
    }
    if watch:
        show_live(
            service,
            read=lambda: _page(service, query, limit)[0],
            draw=lambda rows: jobs_table(rows, now_s=time.time()),
            as_json=as_json,
        )
        return
    rows, more = list["Job"](), False
    if every:
        rows = list(service.jobs(**query))
    else:
        rows, more = _page(service, query, limit)
    if as_json:
        print_json({"jobs": rows, "more": more})
        return
    print_shown(jobs_table(rows, now_s=time.time()) if rows else "no jobs")
    if more:
        print_remark(f"there are more than {limit}; --all shows every one")


def jobs_table(rows: list[Job], *, now_s: float) -> Text:
    """Make a table with a row per job."""
    return table(_HEADINGS, [_row(job, now_s) for job in rows], spare=_SPARE)


def own_name(job: Job) -> str:
    """Return the job's name if its id does not begin with it."""
    return "" if job["job_id"].startswith(f"{job['name']}-") else job["name"]


def own_project(job: Job) -> str:
    """Return the job's project if it is not the default project."""
    return "" if job["project"] == _DEFAULT_PROJECT else job["project"]


def progress(job: Job) -> str:
    """Write a job's progress: the completed fraction of its work, or ``-`` if unknown."""
    if job["status"] == "completed":
        return format_percent(1.0)
    total = job["total_steps"]
    if not total or job["steps_done"] > total:  # the total is a duration, but the job counts steps
        return "-"
    # Never 100 % before the end.
    return format_percent(int(job["steps_done"] / total * 100) / 100)


def gpu_use(job: Job, now_s: float) -> str:
    """Write how busy a job's GPUs are, and since when they idle; empty if not measured."""
    use, since_s = job.get("gpu_use"), job.get("idle_since_s")  # an older server sends neither
    if use is None:
        return ""
    return (
        format_percent(use)
        if since_s is None
        else f"{format_percent(use)}, idle for {format_span(now_s - since_s)}"
    )


def format_run_time(job: Job) -> str:
    """Write how long a job has held workers; its waits between two leases do not count."""
    # A server of the previous release does not send it.
    return format_span(job["ran_s"]) if job.get("ran_s") else ""


def _page(service: ServiceClient, filters: ListJobsQuery, limit: int) -> tuple[list[Job], bool]:
    asked: ListJobsQuery = {**filters, "limit": limit}
    page = service.job_page(**asked)
    return page["jobs"], page["next_cursor"] is not None


def _row(job: Job, now_s: float) -> tuple[Any, ...]:
    return (
        job["job_id"],
        own_name(job),
        own_project(job),
        job["status"],
        "" if job["status"] == "running" else reason_in_words(job["reason"]),
        job["worker_type"],
        job["workers"] or job["scale_factor"],
        "" if (use := job.get("gpu_use")) is None else format_percent(use),
        progress(job),
        "" if job["share"] is None else f"{job['share']:.2f}",
        format_ago(job["submitted_s"], now_s),
        format_run_time(job),
    )
