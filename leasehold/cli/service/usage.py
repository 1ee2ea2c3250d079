"""``leasehold usage``: worker-hours under leases, by user and worker type."""

from __future__ import annotations

import csv
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leasehold.cli.display.output import (
    format_number,
    format_percent,
    print_json,
    print_shown,
    table,
)
from leasehold.cli.reading.pairs import split_list
from leasehold.cli.session.completion import complete_project
from leasehold.cli.session.remote import Json, remote
from scheduler.errors import InputError
from scheduler.store.usage import UsageKey
from scheduler.views.times import format_moment, format_span, parse_past

if TYPE_CHECKING:
    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import ShowUsageQuery, UsageOfGroup

KEYS = tuple(key.value for key in UsageKey)
#: Default keys of the sums, and default time span.
_BY, _SINCE = "project,worker_type", "30d"


@remote
def usage(
    service: ServiceClient,
    *,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="KEYS",
            help=f"Add up by any of: {', '.join(KEYS)}; by {_BY} unless given.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="WHEN",
            help=f"From so long ago, or an ISO 8601 time; {_SINCE} ago unless given.",
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="WHEN", help="Until then; now unless given.")
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(
            "--project", "-p", help="Only this project's.", autocompletion=complete_project
        ),
    ] = None,
    idle: Annotated[
        bool, typer.Option("--idle", help="List running jobs with GPUs that hardly compute now.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, in worker-seconds.")] = False,
    as_json: Json = False,
) -> None:
    """Show worker-hours that were held under leases, by project, user, job type and more."""
    if as_csv and as_json:
        raise InputError("--csv and --json exclude each other")
    if idle:
        window = (("--by", by), ("--since", since), ("--until", until))
        for option, value in window:
            if value is not None:
                raise InputError(
                    f"{option} '{value}' and --idle exclude each other: it lists running jobs, now"
                )
        _show_idle(service, project, as_csv=as_csv, as_json=as_json)
        return
    keys = _keys(_BY if by is None else by)
    now_s = time.time()
    begin = _SINCE if since is None else since
    since_s = parse_past(begin, now_s=now_s, name="--since")
    if since_s > now_s and until is None:
        raise InputError(f"--since is '{begin}', which is still to come; give a time that is past")
    query: ShowUsageQuery = {
        "by": keys,  # type: ignore[typeddict-item]  # checked above
        "since_s": since_s,
        "project": project,
    }
    if until is not None:
        query["until_s"] = until_s = parse_past(until, now_s=now_s, name="--until")
        if until_s <= since_s:
            raise InputError(f"--since is '{begin}', which is not before --until, '{until}'")
    found = service.usage(**query)
    if as_json:
        print_json(found)
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([*keys, "leases", "worker_s", "gpu_used_s", "gpu_measured_s"])
        writer.writerows(
            [
                *(_cell(row, key) for key in keys),
                row["leases"],
                f"{row['worker_s']:.6f}",
                "" if (used_s := row.get("gpu_used_s")) is None else f"{used_s:.6f}",
                f"{row.get('gpu_measured_s', 0.0):.6f}",
            ]
            for row in found["usage"]
        )
    else:
        print_shown(_table(found["usage"], keys) if found["usage"] else "nothing was used")
        print_shown(
            f"{format_number(found['worker_s'] / 3600)} worker-hours "
            f"from {format_moment(found['since_s'])} to {format_moment(found['until_s'])}"
        )


def _show_idle(service: ServiceClient, project: str | None, *, as_csv: bool, as_json: bool) -> None:
    """Show the jobs that hold GPUs but hardly use them, the longest idle first."""
    found = [
        lease
        for lease in service.leases(idle=True)
        if lease.get("idle_since_s") is not None and project in {None, lease["project"]}
    ]
    now_s = time.time()
    if as_json:
        print_json({"idle": found})
        return
    rows = [
        (
            lease["job_id"],
            lease["project"],
            lease["owner"],
            lease["worker_type"],
            len(lease["workers"]),
            ", ".join(lease["nodes"]),
            lease["gpu_use"] or 0.0,
            now_s - (lease["idle_since_s"] or now_s),
        )
        for lease in found
    ]
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([*_IDLE, "gpu_use", "idle_s"])
        writer.writerows([*row[:6], f"{row[6]:.4f}", f"{row[7]:.0f}"] for row in rows)
        return
    shown = [(*row[:6], format_percent(row[6]), format_span(row[7])) for row in rows]
    headings = ("job", "project", "owner", "on", ">workers", "nodes", ">use", ">idle for")
    spare = ("nodes", "project", "workers")
    print_shown(table(headings, shown, spare=spare) if shown else "no running job is known to idle")


_IDLE = ("job", "project", "owner", "worker_type", "workers", "nodes")


def _keys(text: str) -> list[str]:
    keys = [key.replace("-", "_") for key in split_list([text], option="--by")]
    for key in keys:
        if key not in KEYS:
            raise InputError(f"--by is '{key}'; give any of {', '.join(KEYS)}")
    return keys


def _cell(row: UsageOfGroup, key: str) -> str:
    value: Any = row["day_s" if key == "day" else key]  # type: ignore[literal-required]  # one of its keys
    if key == "day":
        return f"{datetime.fromtimestamp(value, tz=UTC):%Y-%m-%d}"
    return str(value)


#: Meaning of a key's empty value.
_EMPTY = {"worker_type": "(several types)", "job": "(forgotten jobs)"}


def _table(rows: list[UsageOfGroup], keys: list[str]) -> Any:
    whole = sum(row["worker_us"] for row in rows)
    headings = [*(key.replace("_", " ") for key in keys), ">leases", ">worker-hours", ">part"]
    # A server of the previous release sends no use.
    measured = any(row.get("gpu_used_s") is not None for row in rows)
    headings += [">GPU-hours used", ">of measured", ">use"] if measured else []
    ordered = sorted(rows, key=lambda row: -row["worker_us"]) if "day" not in keys else rows
    cells = [
        [
            *(_cell(row, key) or _EMPTY.get(key, "") for key in keys),
            row["leases"],
            format_number(row["worker_s"] / 3600),
            format_percent(row["worker_us"] / whole),
            *(_computed(row) if measured else ()),
        ]
        for row in ordered
    ]
    return table(headings, cells, spare=("leases", "of measured", "GPU-hours used"), wrapped=True)


def _computed(row: UsageOfGroup) -> tuple[str, str, str]:
    """Return the GPUs' computing time, as far as known, and its share; "-" if not measured."""
    used_s, measured_s = row.get("gpu_used_s"), row.get("gpu_measured_s")
    if used_s is None or not measured_s:
        return "-", "-", "-"
    return (
        format_number(used_s / 3600),
        format_number(measured_s / 3600),
        format_percent(used_s / measured_s),
    )
