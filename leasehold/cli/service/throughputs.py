"""``leasehold throughputs``: steps/s, measured against declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from leasehold.cli.display.output import (
    format_number,
    format_percent,
    print_json,
    print_remark,
    print_shown,
    table,
)
from leasehold.cli.reading.pairs import parse_figures
from leasehold.cli.session.remote import Json, remote
from leasehold.cli.session.wording import wording_of
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import Pair, ThroughputIn


@remote
def throughputs(
    service: ServiceClient,
    *,
    job_type: Annotated[str | None, typer.Option("--job-type", help="Only this one.")] = None,
    worker_type: Annotated[
        str | None, typer.Option("--type", "-t", help="Only this worker type.")
    ] = None,
    declare: Annotated[
        list[str] | None,
        typer.Option(
            "--declare", metavar="TYPE=X", help="Declare steps/s of --job-type. Repeatable."
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", "-w", min=1, help="Scale factor of the declared figures.")
    ] = 1,
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget all that is known of --job-type.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show, declare, or forget throughputs of job types on worker types."""
    if forget:
        _forget(service, job_type, worker_type)
    if declare:
        _declare(service, job_type, parse_figures(declare, option="--declare"), workers)
    found = service.throughputs(job_type=job_type, worker_type=worker_type)
    pairs = service.sharing(job_type=job_type, worker_type=worker_type)
    if as_json:
        print_json({"throughputs": found, "pairs": pairs})
        return
    headings = (
        "job type", ">workers", "on", ">steps/s", "source", ">declared", ">measured", ">+-",
        ">samples",
    )  # fmt: skip
    rows = [
        (
            t["job_type"],
            t["scale_factor"],
            t["worker_type"],
            format_number(t["steps_per_s"]),
            t["source"],
            format_number(t["declared"]),
            format_number(t["measured"]),
            format_percent(t["deviation"]),
            t["samples"],
        )
        for t in found
    ]
    spare = ("samples", "+-", "source", "declared")
    print_shown(table(headings, rows, spare=spare) if rows else "no throughputs")
    if pairs:
        print_shown("")
        print_shown(_pairs(pairs))


def _pairs(pairs: Sequence[Pair]) -> Text:
    """Return a table of the speeds of pairs, relative to the speeds alone."""
    headings = ("job type", "shares with", ">workers", "on", ">keeps", ">other keeps")
    rows = [
        (
            pair["job_type"],
            pair["with_job_type"],
            pair["scale_factor"],
            pair["worker_type"],
            format_percent(pair["part"]),
            format_percent(pair["with_part"]),
        )
        for pair in pairs
    ]
    return table(headings, rows)


def _declare(
    service: ServiceClient, job_type: str | None, figures: dict[str, float], workers: int
) -> None:
    if not job_type:
        raise InputError("--declare needs --job-type, the type that the figures are of")
    service.wording = wording_of(throughputs="--declare", job_type="--job-type")
    for worker_type, figure in figures.items():
        if figure < 0.0:
            raise InputError(f"--declare '{worker_type}' is {figure:g}; give steps/s, 0 or more")
    entries: list[ThroughputIn] = [
        {
            "job_type": job_type,
            "scale_factor": workers,
            "worker_type": worker_type,
            "steps_per_s": figure,
        }
        for worker_type, figure in figures.items()
    ]
    changed = service.declare_throughputs(entries)["changed"]
    print_remark(f"{changed} of {len(entries)} figures changed")


def _forget(service: ServiceClient, job_type: str | None, worker_type: str | None) -> None:
    if not job_type:
        raise InputError("--forget needs --job-type, the type with the figures to drop")
    if worker_type:
        raise InputError("--forget drops the figures on all worker types; leave out --type")
    changed = service.forget_throughputs(job_type)["changed"]
    print_remark(f"{changed} figures of '{job_type}' forgotten")
