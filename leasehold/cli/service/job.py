"""``leasehold job`` and ``leasehold explain``: one job, and the reasons of its state."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leasehold.cli.display.output import (
    format_number,
    format_pairs,
    format_percent,
    plain_cell,
    print_json,
    print_remark,
    print_shown,
    table,
)
from leasehold.cli.jobspec.selection import (  # noqa: TC001 - typer reads them
    JobId,
)
from leasehold.cli.service.jobs import format_run_time, gpu_use, progress
from leasehold.cli.session.follow import cause_of, cause_text, format_figures
from leasehold.cli.session.remote import Json, remote
from scheduler.views.plan_words import plan_in_words
from scheduler.views.reason_words import reason_in_words, wait_in_words
from scheduler.views.times import format_clock, format_moment, format_span, format_when

if TYPE_CHECKING:
    from leasehold.cli.session.client import ServiceClient
    from leasehold.client import forms

_EVENTS: Final = 20


@remote
def job(
    service: ServiceClient,
    job_id: JobId,
    *,
    events: Annotated[
        int, typer.Option(min=1, max=999, help="The newest lines of its history.")
    ] = _EVENTS,
    as_json: Json = False,
) -> None:
    """Show one job: its state, specification, attempts and history."""
    details = service.job(job_id)
    job_id = details["job_id"]
    attempts = service.attempts(job_id)
    about: Any = {"subject_kind": "job", "subject": job_id}
    lines = service.history(**about, descending=True, limit=events + 1)["events"]
    more, lines = len(lines) > events, lines[:events][::-1]
    if as_json:
        print_json({**details, "attempts_made": attempts, "events": lines})
        return
    now_s = time.time()
    print_shown(table(("field", "=value"), _fields(details, now_s)))
    if attempts:
        print_shown("", _attempts(attempts, now_s, seconds=_by_duration(details)))
    if lines:
        print_shown("", _history(lines))
    if more:
        print_remark(f"the newest {len(lines)} lines of its history; --events N shows more")


@remote
def explain(service: ServiceClient, job_id: JobId, *, as_json: Json = False) -> None:
    """Explain a job's state: the reason, the remedy, and the expected time."""
    found = service.explain(job_id)
    if as_json:
        print_json(found)
        return
    now_s = time.time()
    reason = reason_in_words(found["reason"])
    print_shown(
        f"{found['job_id']} is {found['status']}" + (f": {plain_cell(reason)}" if reason else ""),
        f"  {plain_cell(found['message'])}",
    )
    facts = (
        ("plan", plan_in_words(found.get("plan", ""))),  # older servers do not send it
        ("granted", cause_text(found.get("granted"))),
        ("ended", cause_text(found.get("ended"))),
        ("also", "; ".join(map(wait_in_words, found["also"]))),
        ("trouble", (found.get("trouble") or "").replace("_", " ")),
        ("unblocks", found["unblocks"]),
        ("queue", found["position"] and f"{found['position']} of {found['waiting']}"),
        ("starts", format_when(found["starts_s"], now_s)),
        ("completes", format_when(found["completes_s"], now_s)),
        ("forecast", found["forecast"]),
    )
    for label, value in facts:
        if value:
            print_shown(f"  {label + ':':<11}{plain_cell(value)}")
    if ahead := found.get("ahead"):  # older servers do not send it
        print_shown("  right before it in the queue:", *(f"    {_job_ahead(one)}" for one in ahead))
    if ways := found.get("configurations"):
        rows = [
            (
                one["worker_type"],
                one["count"],
                format_number(one["steps_per_s"]),
                one["source"],
                plan_in_words(one["plan"]),
            )
            for one in ways
        ]
        headings = ("worker type", ">workers", ">steps/s", "source", "plan")
        print_shown("  it could run:", table(headings, rows, wrapped=True))
    if tail := found.get("stderr_tail"):  # a server of the previous release does not send it
        print_shown(
            "  it said last:",
            *(f"    {plain_cell(line.expandtabs())}" for line in tail.splitlines()),
        )


def _job_ahead(one: forms.JobAhead) -> str:
    name = f"{one['project']}/{one['job_id']}" if one["job_id"] else "a job of another project"
    planned = ", has workers in the next round" if one["is_planned"] else ""
    behind = f", {format_span(one['lag_s'])} behind its share" if one["lag_s"] >= 1 else ""
    return plain_cell(name + planned + behind)


def _fields(job: forms.JobWithSpec, now_s: float) -> list[tuple[str, Any]]:
    spec = job.get("spec") or {}
    where = f"{job['worker_type']} x {job['workers']} on {', '.join(job['nodes'])}"
    by_duration = _by_duration(job)
    counts = spec.get("scale_factors") or [job["scale_factor"]]
    fields = [
        ("job", job["job_id"]),
        ("name", job["name"]),
        ("project", job["project"]),
        ("owner", job["owner"]),
        ("status", _status(job, now_s)),
        ("why", reason_in_words(job["reason"])),
        ("running on", where if job["workers"] else ""),
        ("GPU use", gpu_use(job, now_s)),
        ("lease until", format_when(job["lease_deadline_s"], now_s)),
        ("job type", job["job_type"]),
        ("scale factor", ", ".join(map(str, counts))),
        ("weight", job["weight"]),
        ("duration" if by_duration else "steps", _work(job, seconds=by_duration)),
        ("allocation", " ".join(f"{k}={format_percent(v)}" for k, v in job["allocation"].items())),
        ("of isolated share", _times(job["share"])),
        ("rho", _rho(job)),
        ("submitted", format_when(job["submitted_s"], now_s)),
        ("started", format_when(job["started_s"], now_s)),
        ("finished", format_when(job["finished_s"], now_s)),
        ("ran", format_run_time(job)),
        ("deadline", format_when(job["deadline_s"], now_s)),
        ("attempts", job["attempts"]),
        ("failures", job["failures"]),
        ("labels", format_pairs(job["labels"])),
        ("command", " ".join(map(str, spec.get("command") or ()))),
        ("working dir", spec.get("working_dir")),
        ("image", spec.get("image")),
        ("after", ", ".join(spec.get("depends_on") or ())),
    ]
    return [(label, value) for label, value in fields if value not in (None, "", 0)]


def _status(job: forms.JobWithSpec, now_s: float) -> str:
    """Write a job's status and for how long it has had it; an older server does not send that."""
    since_s = job.get("since_s")
    return (
        job["status"] if since_s is None else f"{job['status']} for {format_span(now_s - since_s)}"
    )


def _times(share: float | None) -> str | None:
    """Write a job's throughput as a part of its isolated share."""
    return None if share is None else f"{share:.2f}x"


def _rho(job: forms.JobWithSpec) -> str | None:
    """Write a job's finish-time fairness; a server of the previous release does not send it."""
    rho = job.get("rho")
    return None if rho is None else f"{rho:.2f}"


def _by_duration(job: forms.JobWithSpec) -> bool:
    """Return whether a job counts seconds of its duration and no steps."""
    spec = job.get("spec") or {}
    return spec.get("total_steps") is None and spec.get("duration_s") is not None


def _work(job: forms.JobWithSpec, *, seconds: bool) -> str:
    """Write how much of its work a job has done: steps, or seconds of its duration."""
    written = format_span if seconds else format_number
    if job["total_steps"] is None:
        return f"{written(job['steps_done'])} of an unknown number"
    return f"{written(job['steps_done'])} of {written(job['total_steps'])} ({progress(job)})"


def _attempts(attempts: list[forms.Attempt], now_s: float, *, seconds: bool) -> Any:
    headings = (
        ">attempt", "worker type", "nodes", "began", ">launch", ">held", "ended by", ">exit",
        ">done" if seconds else ">steps", "message",
    )  # fmt: skip
    rows = [
        (
            a["attempt"],
            a["worker_type"] or "(several types)",
            ", ".join(a["nodes"]),
            format_moment(a["start_s"]),
            _launch(a),
            format_span((a["ended_s"] or now_s) - a["start_s"]),
            (a["end_reason"] or "").replace("_", " "),
            a["exit_code"],
            (format_span if seconds else format_number)(a["steps_done"]),
            a["message"],
        )
        for a in attempts
    ]
    spare = ("launch", "steps", "done", "held", "began", "worker type")
    return table(headings, rows, spare=spare, wrapped=True)


def _launch(attempt: forms.Attempt) -> str:
    """Write the start time of the slowest pod; a server of the previous release sends none."""
    found = [one["ready_s"] or one["launch_s"] or 0.0 for one in attempt.get("launches", ())]
    return format_span(max(found)) if found else ""


def _history(lines: list[forms.Event]) -> Any:
    rows = [
        (
            format_clock(e["at_s"]),
            e["kind"].replace("_", " "),
            cause_of(e),
            format_figures(e["data"]),
            e["actor"],
        )
        for e in lines
    ]
    return table(("at", "what", "why", "=figures", "by"), rows, spare=(), wrapped=True)
