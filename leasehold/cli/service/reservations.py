"""``leasehold reservation``: workers reserved during a time window."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leasehold.cli.display.output import print_json, print_shown, table
from leasehold.cli.session.completion import complete_job, complete_project
from leasehold.cli.session.each import do_to_each
from leasehold.cli.session.groups import group_with_default
from leasehold.cli.session.near_names import remark_on_projects
from leasehold.cli.session.remote import Json, remote
from leasehold.cli.session.wording import wording_of
from scheduler.errors import InputError
from scheduler.views.times import format_moment, parse_moment

if TYPE_CHECKING:
    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import Reservation, ReservationIn

#: The begin that is meant if none is given.
_NOW: Final = "0s"

Name = Annotated[str, typer.Argument(help="The reservation.")]

app = typer.Typer(help="Reserve workers for a time window.", cls=group_with_default("list"))


@app.command("list")
@remote
def list_reservations(service: ServiceClient, *, as_json: Json = False) -> None:
    """List the reservations, the one that begins first at the top."""
    found = service.reservations()
    if as_json:
        print_json({"reservations": found})
        return
    print_shown(_table(found) if found else "no reservations")


@app.command("show")
@remote
def show(service: ServiceClient, name: Name, *, as_json: Json = False) -> None:
    """Show a reservation, and on which nodes its workers are."""
    found = service.reservation(name)
    if as_json:
        print_json(found)
        return
    print_shown(_table([found]))
    short = found["reservation"]["workers"] - found["assigned"]
    nodes = ", ".join(f"{node}: {count}" for node, count in found["nodes"].items()) or "none"
    print_shown(f"nodes: {nodes}" + (f"; short of {short} that are in service" if short else ""))


@app.command("add")
@remote
def add(
    service: ServiceClient,
    name: Annotated[str, typer.Argument(help="A name for it.")],
    *,
    worker_type: Annotated[str, typer.Option("--worker-type", "-t", help="Of the workers.")],
    workers: Annotated[int, typer.Option("--workers", "-n", metavar="N", help="How many.")],
    until: Annotated[
        str,
        typer.Option("--until", metavar="WHEN", help="End: an ISO 8601 time, or a span from now."),
    ],
    begin: Annotated[
        str, typer.Option("--from", metavar="WHEN", help="Begin; now unless given.")
    ] = _NOW,
    project: Annotated[
        str | None,
        typer.Option(
            "--project", "-p", help="For jobs of this project.", autocompletion=complete_project
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", help="For jobs that this user submitted.")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="JOB",
            help="For this job alone: its id, the beginning of it, or its name.",
            autocompletion=complete_job,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Reserve workers for the jobs that fit all of --project, --user and --job."""
    if not (project or user or job):
        raise InputError("the owner is missing; give --project, --user or --job")
    now_s = time.time()
    from_s = parse_moment(begin, now_s=now_s, name="--from")
    until_s = parse_moment(until, now_s=now_s, name="--until")
    if until_s <= from_s:
        start = "now" if begin == _NOW else f"--from, '{begin}'"
        raise InputError(f"--until is '{until}', which is not after {start}")
    service.wording = wording_of(
        name="the name", worker_type="--worker-type", workers="--workers", user="--user",
        job="--job", from_s="--from", until_s="--until",
    )  # fmt: skip
    what: ReservationIn = {
        "name": name,
        "worker_type": worker_type,
        "workers": workers,
        "from_s": from_s,
        "until_s": until_s,
        "project": project,
        "user": user,
        "job": job,
    }
    remark_on_projects(service, [project] if project else [])
    made = service.reserve(**what)
    if as_json:
        print_json(made)
    else:
        print_shown(_table([made]))


@app.command("delete")
@remote
def delete(service: ServiceClient, name: Name, *, as_json: Json = False) -> None:
    """Give up a reservation; all jobs may use its workers again."""
    do_to_each([name], service.delete_reservation, done="deleted", as_json=as_json)


def _table(found: list[Reservation]) -> Any:
    headings = ("name", "state", "workers", ">assigned", ">used", "from", "until", "for")
    rows = []
    for one in found:
        rule = one["reservation"]
        named = (("project", rule["project"]), ("user", rule["user"]), ("job", rule["job"]))
        rows.append(
            (
                rule["name"],
                one["state"],
                f"{rule['worker_type']}:{rule['workers']}",
                one["assigned"],
                one["used"],
                format_moment(rule["from_s"]),
                format_moment(rule["until_s"]),
                ", ".join(f"{kind} {who}" for kind, who in named if who),
            )
        )
    return table(headings, rows, spare=("used",), wrapped=True)
