"""Wait for jobs and show their history."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import typer

from leasehold.cli import exit_codes
from leasehold.cli.display.output import format_pairs, plain_cell, print_json_line, print_remark
from leasehold.cli.session.outages import with_retries
from leasehold.client import ENDED
from scheduler.errors import NotFoundError
from scheduler.views.reason_words import reason_in_words
from scheduler.views.times import format_clock, format_moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import Cause, Event, EventPage, ListEventsQuery

#: The first and the longest wait between two polls, as numbers of ``ServiceClient.pause``.
_FIRST_LOOK, _LAST_LOOK = 1, 6
#: Data of history lines that are times, not spans.
_MOMENTS: Final = frozenset({"deadline_s", "from_s", "until_s"})


def format_figures(data: dict[str, Any]) -> str:
    """Write the data of a history line on one line, moments as people read them."""
    shown = data | {name: format_moment(data[name]) for name in _MOMENTS & data.keys()}
    # The numbers of a lease's workers say little to people.
    if isinstance(workers := data.get("workers"), list) and "lease" in data:
        shown["workers"] = len(workers)
    reason = data.get("reason")
    if isinstance(reason, str) and "_" in reason:  # an identifier, not a user's own word
        shown["reason"] = reason_in_words(reason)
    return format_pairs(shown)


def wait_for_jobs(service: ServiceClient, job_ids: Sequence[str]) -> int:
    """Wait until all jobs have ended, across restarts of the scheduler.

    Returns:
        0 if all completed, else 1.
    """
    code = 0
    for job_id in job_ids:
        status = await_end(service, job_id)
        if status != "completed":
            print_remark(f"{job_id} {status}")
            code = exit_codes.FAILED
    return code


def follow_jobs(service: ServiceClient, job_ids: Sequence[str], *, as_json: bool) -> int:
    """Show the history of jobs until all have ended; see ``wait_for_jobs``."""
    wanted, statuses = set(job_ids), dict[str, str]()
    filters: ListEventsQuery = {"subject_kind": "job"}
    if len(job_ids) == 1:
        filters["subject"] = job_ids[0]
    # One job's history is short. For several jobs, events before this call are left out.
    seen = 0 if len(job_ids) == 1 else with_retries(service, lambda: _newest_event(service))
    for job_id in job_ids:
        _note_end(service, job_id, statuses)
    if wanted - statuses.keys():
        asked: ListEventsQuery = {**filters, "after": seen}
        for event in with_retries(service, lambda: service.events(**asked)):
            seen = event["event_id"]
            if event["subject"] not in wanted:
                continue
            show_event(event, as_json=as_json)
            # The line reports an event; the job itself has the present state.
            if event["subject"] not in statuses:
                _note_end(service, event["subject"], statuses)
            if wanted <= statuses.keys():
                break
    for event in _past(service, seen, filters):
        if event["subject"] in wanted:
            show_event(event, as_json=as_json)
    return 0 if set(statuses.values()) <= {"completed"} else exit_codes.FAILED


def show_event(event: Event, *, as_json: bool) -> None:
    """Print a line of history."""
    if as_json:
        print_json_line(event)
        return
    words = (
        format_clock(event["at_s"]),
        f"{event['subject_kind']} {plain_cell(event['subject'])}",
        event["kind"].replace("_", " "),
        format_figures(event["data"]),
        cause_of(event),
        f"by {plain_cell(event['actor'])}" if event["actor"] else "",
    )
    typer.echo("  ".join(word for word in words if word))


def cause_of(event: Event) -> str:
    """Return the reason of an event in words; a server of the previous release sends none."""
    return cause_text(event.get("cause"))


def cause_text(cause: Cause | None) -> str:
    """Return a cause in words; empty for none."""
    return plain_cell(cause["text"]) if cause else ""


def _newest_event(service: ServiceClient) -> int:
    return service.history(descending=True, limit=1)["last_event_id"]


def _past(service: ServiceClient, after: int, filters: ListEventsQuery) -> Iterator[Event]:
    """Yield the existing lines of history."""
    while True:
        page = with_retries(service, partial(_page, service, after, filters))
        yield from page["events"]
        if page["last_event_id"] <= after:
            return
        after = page["last_event_id"]


def _page(service: ServiceClient, after: int, filters: ListEventsQuery) -> EventPage:
    asked: ListEventsQuery = {**filters, "after": after, "limit": 1000}
    return service.history(**asked)


def await_end(service: ServiceClient, job_id: str) -> str:
    """Wait until a job has ended, and return its status: "is forgotten" if it is gone."""
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
    return with_retries(service, lambda: service.job(job_id)["status"])
