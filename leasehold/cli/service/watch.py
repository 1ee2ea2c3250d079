"""``leasehold watch``: live events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leasehold.cli.display.output import print_remark
from leasehold.cli.jobspec.selection import Selector, selection_of
from leasehold.cli.reading.pairs import split_list
from leasehold.cli.session.completion import complete_job, complete_project
from leasehold.cli.session.follow import follow_jobs, show_event
from leasehold.cli.session.remote import Json, remote
from leasehold.naming import ACTIVE
from scheduler.errors import InputError
from scheduler.views.times import parse_past

if TYPE_CHECKING:
    from leasehold.cli.session.client import ServiceClient


@remote
def watch(
    service: ServiceClient,
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB]...",
            help="Only these jobs, until they have ended; exit code 0 if all completed.",
            autocompletion=complete_job,
            show_default=False,
        ),
    ] = None,
    *,
    selector: Selector = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="A[,B...]", help="Only these kinds of events."),
    ] = None,
    subject_kind: Annotated[
        str | None, typer.Option("--subject", help="Only about: job, node, policy, project, ...")
    ] = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="NAME", help="Only events caused by this user.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Begin 2h ago, or at an ISO 8601 time."),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option("--project", "-p", help="Only of this one.", autocompletion=complete_project),
    ] = None,
    after: Annotated[
        int | None,
        typer.Option("--after", min=0, help="Begin after this event id; 0 begins at the start."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the history as it is written, through restarts of the scheduler."""
    if ids or selector:
        found = _meant(service, ids, selector)
        if not found:
            print_remark("no job matches")
        elif code := follow_jobs(service, found, as_json=as_json):
            raise typer.Exit(code)
        return
    if since is not None and after is not None:
        raise InputError(
            f"--since '{since}' and --after {after} exclude each other: give only one start"
        )
    filters: Any = {
        # Webhooks write them with dots.
        "kind": [one.replace(".", "_") for one in split_list(kind or [], option="--kind")],
        "subject_kind": subject_kind,
        "project": project,
        "actor": actor,
    }
    if since is not None:
        filters["since_s"] = parse_past(since, now_s=time.time(), name="--since")
        after = 0
    for event in service.events(**filters, after=after):
        show_event(event, as_json=as_json)


def _meant(service: ServiceClient, ids: list[str] | None, selector: list[str] | None) -> list[str]:
    """Return the ids of the jobs to watch; a wrong name is an error at once."""
    which = selection_of(ids, selector)
    if "ids" in which:
        return list(dict.fromkeys(i for word in which["ids"] for i in service.ids_of(word)))
    query = which["selector"]
    labels = [f"{key}={value}" for key, value in query.pop("labels", {}).items()]
    asked: Any = {"status": [*ACTIVE], **query, "label": labels}
    return [job["job_id"] for job in service.jobs(**asked)]
