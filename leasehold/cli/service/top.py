"""``leasehold top``: nodes, leases and queue on one screen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leasehold.cli.display.output import (
    format_number,
    format_percent,
    plain_cell,
    print_json,
    print_shown,
    table,
)
from leasehold.cli.service.jobs import own_name, own_project
from leasehold.cli.service.nodes import nodes_table
from leasehold.cli.session.live_view import show_live
from leasehold.cli.session.remote import Json, remote
from scheduler.errors import InputError
from scheduler.views.reason_words import reason_in_words
from scheduler.views.times import format_ago, format_span, parse_span

if TYPE_CHECKING:
    from rich.console import Group

    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import Job, Lease

#: Shortest time between two frames: each is four requests.
_LEAST_S: Final = 0.2
#: Rows of leases and of waiting jobs that fit a screen.
_ROWS: Final = 15


@remote
def top(
    service: ServiceClient,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one frame.")] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="SPAN", help="Between two frames.")
    ] = "2s",
    as_json: Json = False,
) -> None:
    """Watch the cluster: nodes, leases, queue and round."""
    every_s = parse_span(every, name="--every")
    if every_s < _LEAST_S:
        raise InputError(f"--every is '{every}'; give a span of {_LEAST_S:g} s or more")
    if not once:
        show_live(
            service,
            read=lambda: request_frame(service),
            draw=draw_frame,
            as_json=as_json,
            every_s=every_s,
        )
    elif as_json:
        print_json(request_frame(service))
    else:
        print_shown(draw_frame(request_frame(service)))


def request_frame(service: ServiceClient) -> dict[str, Any]:
    """Request the data of a frame."""
    return {
        "at_s": time.time(),
        "server": service.connection.server,
        "cluster": service.cluster(),
        "policy": service.policy(),
        "nodes": service.nodes(),
        "leases": service.leases(),
        "waiting": service.job_page(status="waiting", sort="submitted", limit=_ROWS)["jobs"],
    }


def draw_frame(seen: dict[str, Any]) -> Group:
    """Draw a frame."""
    from rich.console import Group  # noqa: PLC0415  0.1 s to import
    from rich.text import Text  # noqa: PLC0415 - keeps the start quick

    now_s, cluster = seen["at_s"], seen["cluster"]
    leases, waiting = seen["leases"], seen["waiting"]
    parts: list[Any] = [
        Text(line, style="bold" if i == 0 else "") for i, line in enumerate(_head(seen))
    ]
    parts += [Text(), nodes_table(seen["nodes"], now_s=now_s)]
    if leases:
        parts += [Text(), _leases(leases[:_ROWS], now_s), _more(len(leases))]
    if waiting:
        count = sum(cluster["waiting"].values()) or len(waiting)
        parts += [Text(), _waiting(waiting, now_s), _more(count)]
    return Group(*parts)


def _head(seen: dict[str, Any]) -> list[str]:
    cluster, policy = seen["cluster"], seen["policy"]
    ends = cluster["round_ends_s"]
    left = "" if ends is None else f", {format_span(max(ends - seen['at_s'], 0.0))} left"
    types = [
        f"{kind} {cluster['busy'].get(kind, 0)}/{cluster['in_service'].get(kind, 0)}"
        + (f" of {known}" if known != cluster["in_service"].get(kind, 0) else "")
        for kind, known in cluster["workers"].items()
    ]
    lines = [
        f"{seen['server']}  {policy['name']}  round {cluster['round_number']}{left}",
        f"busy {format_percent(cluster['utilisation'])}  " + "  ".join(types),
        "jobs " + ("  ".join(f"{k} {v}" for k, v in cluster["jobs"].items()) or "none"),
    ]
    if cluster["waiting"]:
        reasons = (f"{k.replace('_', ' ')} {v}" for k, v in cluster["waiting"].items())
        lines.append("waiting for " + "  ".join(reasons))
    if policy["last_failure"]:
        lines.append(f"last failure of the policy: {plain_cell(policy['last_failure'])}")
    return lines


def _leases(leases: list[Lease], now_s: float) -> Any:
    headings = ("lease", "job", ">attempt", "on", "nodes", "state", ">held", ">left", ">steps")
    rows = [
        (
            lease["lease_id"],
            lease["job_id"],
            lease["attempt"],
            f"{lease['worker_type']} x {len(lease['workers'])}",
            ",".join(lease["nodes"]),
            lease["state"],
            format_span(now_s - lease["start_s"]),
            format_span(max(lease["deadline_s"] - now_s, 0.0)),
            format_number(lease["steps_done"]),
        )
        for lease in leases
    ]
    return table(headings, rows, spare=("attempt", "held", "lease", "nodes"))


def _waiting(jobs: list[Job], now_s: float) -> Any:
    headings = ("waiting", "~name", "project", ">workers", "why", ">age")
    rows = [
        (
            job["job_id"],
            own_name(job),
            own_project(job),
            job["scale_factor"],
            reason_in_words(job["reason"]),
            format_ago(job["submitted_s"], now_s),
        )
        for job in jobs
    ]
    return table(headings, rows, spare=("project", "name"))


def _more(count: int) -> Any:
    from rich.text import Text  # noqa: PLC0415 - keeps the start quick

    return Text(f"... {count - _ROWS} more" if count > _ROWS else "", style="dim")
