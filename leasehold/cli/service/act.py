"""``cancel``, ``hold``, ``release``, ``requeue`` and ``set``: actions on jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from leasehold.cli import exit_codes
from leasehold.cli.display.output import print_json, print_remark
from leasehold.cli.jobspec.selection import JobIds, Selector, selection_of
from leasehold.cli.session.remote import Json, remote
from leasehold.cli.session.wording import reword, wording_of
from scheduler.errors import InputError
from scheduler.views.times import parse_moment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import Bulk, JobAction

Why: TypeAlias = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; the history keeps it.")
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Only show the outcome for each.")
]

#: Result of each action, in a word.
_DONE: Final[Mapping[JobAction, str]] = {
    "cancel": "cancelled",
    "hold": "held",
    "release": "released",
    "requeue": "requeued",
}


def _action(name: JobAction, what: str) -> Callable[..., None]:
    """Make the command of an action; all have the same options."""

    def command(
        service: ServiceClient,
        ids: JobIds = None,
        *,
        selector: Selector = None,
        reason: Why = "",
        dry_run: DryRun = False,
        as_json: Json = False,
    ) -> None:
        how = {"reason": reason, "dry_run": dry_run}
        _act(service, name, selection_of(ids, selector), how, as_json=as_json)

    command.__name__, command.__doc__ = name, what
    return remote(command)


cancel = _action("cancel", "Cancel jobs.")
hold = _action("hold", "Keep jobs from running until they are released.")
release = _action("release", "Let held jobs run again.")
requeue = _action("requeue", "Stop jobs and put them back in the queue; also jobs that have ended.")


@remote
def change(
    service: ServiceClient,
    ids: JobIds = None,
    *,
    weight: Annotated[float | None, typer.Option("--weight", help="Its importance.")] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline",
            metavar="WHEN",
            help="2h from now, an ISO 8601 time, or none to remove it.",
        ),
    ] = None,
    selector: Selector = None,
    as_json: Json = False,
) -> None:
    """Change weight or deadline of jobs that have not ended."""
    body: dict[str, Any] = {}
    if weight is not None:
        body["weight"] = weight
    if deadline is not None:
        none = deadline.strip().lower() == "none"
        moment_s = None if none else parse_moment(deadline, now_s=time.time(), name="--deadline")
        body["deadline_s"] = moment_s
    if not body:
        raise InputError("nothing to set; give --weight or --deadline")
    _finish(service.change_all(**selection_of(ids, selector), **body), "changed", as_json=as_json)


def _act(
    service: ServiceClient,
    action: JobAction,
    which: dict[str, Any],
    how: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    said = f"would be {_DONE[action]}" if how["dry_run"] else _DONE[action]
    _finish(service.act(action, **which, **how), said, as_json=as_json)


def _finish(found: Bulk, done: str, *, as_json: bool) -> None:
    """Print the result for each job, and exit with the code of the worst.

    Raises:
        typer.Exit: the action failed for some jobs.
    """
    if as_json:
        print_json(found)
    else:
        wording = wording_of(deadline_s="--deadline")
        for acted in found["jobs"]:
            if acted["error"]:
                print_remark(f"{acted['job_id']}: {reword(acted['error'], wording)}")
            elif acted["changed"]:
                typer.echo(f"{acted['job_id']} {done}")
            else:
                typer.echo(f"{acted['job_id']} unchanged")
        if not found["jobs"]:
            print_remark("no job matches")
    if found["truncated"]:
        print_remark("more jobs match than one request acts on; repeat it until none is left")
    codes = {acted["code"] for acted in found["jobs"] if acted["error"]}
    if not codes:
        return
    if found["failed"] < found["matched"]:
        raise typer.Exit(exit_codes.FAILED)
    alike = {"not_found": exit_codes.NOT_FOUND, "invalid": exit_codes.INPUT}
    code = alike.get(codes.pop(), exit_codes.REFUSED) if len(codes) == 1 else exit_codes.REFUSED
    raise typer.Exit(code)
