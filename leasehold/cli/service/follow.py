"""Waiting for jobs and showing what happens to them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import typer

from leasehold.cli import exit_codes
from leasehold.cli.service.client import job_path
from leasehold.cli.service.event_stream import Stream, event_value
from leasehold.cli.service.outages import outlast
from leasehold.cli.service.output import pairs, plain, print_json_line, remark
from leasehold.cli.service.times import clock
from scheduler.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leasehold.cli.service.client import ServiceClient

#: A job in one of these will not run again unless somebody takes it up.
ENDED: Final = frozenset({"completed", "cancelled", "failed", "refused"})
#: The first and the longest wait between two looks, as numbers of ``ServiceClient.pause``.
_FIRST_LOOK, _LAST_LOOK = 1, 6


def wait_for_jobs(service: ServiceClient, job_ids: Sequence[str]) -> int:
    """Wait until all jobs have ended, however often the scheduler restarts meanwhile.

    Returns:
        0 if all completed, else 1.
    """
    code = 0
    for job_id in job_ids:
        status = _await_end(service, job_id)
        if status != "completed":
            remark(f"{job_id} {status}")
            code = exit_codes.FAILED
    return code


def follow_jobs(service: ServiceClient, job_ids: Sequence[str], *, as_json: bool) -> int:
    """Show what happens to jobs until all have ended; see ``wait_for_jobs``."""
    wanted, statuses = set(job_ids), dict[str, str]()
    filters = {"subject_kind": "job", "subject": job_ids[0] if len(job_ids) == 1 else None}
    # One job's history is short. With several, what happened before this call is left out.
    seen = 0 if len(job_ids) == 1 else outlast(service, lambda: newest_event(service))
    for job_id in job_ids:
        _note_end(service, job_id, statuses)
    if wanted - statuses.keys():
        for event in history(service, after=seen, **filters):
            seen = event["event_id"]
            if event["subject"] not in wanted:
                continue
            show_event(event, as_json=as_json)
            # The line tells that something happened, the job itself where it stands by now.
            if event["subject"] not in statuses:
                _note_end(service, event["subject"], statuses)
            if wanted <= statuses.keys():
                break
    for event in _past(service, seen, filters):
        if event["subject"] in wanted:
            show_event(event, as_json=as_json)
    return 0 if set(statuses.values()) <= {"completed"} else exit_codes.FAILED


def newest_event(service: ServiceClient) -> int:
    """Return the id of the newest line of history."""
    return int(service.get("/events", descending=True, limit=1)["last_event_id"])


def history(
    service: ServiceClient, *, after: int | None = None, **filters: Any
) -> Iterator[dict[str, Any]]:
    """Yield lines of history as they appear, without end.

    Args:
        service: whose history.
        after: begin behind this event id; None begins with what happens from now on.
        filters: ``subject_kind``, ``subject``, ``kind``, ``project``.
    """
    # From the first moment on, so that a break before the first event skips nothing.
    last_id = newest_event(service) if after is None else after
    for message in Stream(service, "/events", filters, last_id=str(last_id)):
        yield event_value(message)


def show_event(event: dict[str, Any], *, as_json: bool) -> None:
    """Print a line of history."""
    if as_json:
        print_json_line(event)
        return
    words = (
        clock(event["at_s"]),
        f"{event['subject_kind']} {plain(event['subject'])}",
        event["kind"].replace("_", " "),
        pairs(event["data"]),
        f"by {plain(event['actor'])}" if event["actor"] else "",
    )
    typer.echo("  ".join(word for word in words if word))


def _past(service: ServiceClient, after: int, filters: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the lines of history that are there already."""
    while True:
        page = outlast(service, partial(_page, service, after, filters))
        yield from page["events"]
        if page["last_event_id"] <= after:
            return
        after = page["last_event_id"]


def _page(service: ServiceClient, after: int, filters: dict[str, Any]) -> dict[str, Any]:
    return dict(service.get("/events", after=after, limit=1000, **filters))


def _await_end(service: ServiceClient, job_id: str) -> str:
    look = _FIRST_LOOK
    while True:
        try:
            status = _status(service, job_id)
        except NotFoundError:
            return "is forgotten"
        if status in ENDED:
            return status
        service.pause(look)
        look = min(look + 1, _LAST_LOOK)


def _note_end(service: ServiceClient, job_id: str, statuses: dict[str, str]) -> None:
    try:
        status = _status(service, job_id)
    except NotFoundError:
        status = "forgotten"
    if status in ENDED or status == "forgotten":
        statuses[job_id] = status


def _status(service: ServiceClient, job_id: str) -> str:
    return outlast(service, lambda: str(service.get(job_path(job_id))["status"]))
