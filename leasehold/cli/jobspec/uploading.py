"""``--upload`` of ``submit`` and ``run``: code that is sent along with jobs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from leasehold.cli.jobspec.packing import pack
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.cli.session.client import ServiceClient

Upload: TypeAlias = Annotated[
    bool,
    typer.Option("--upload", help="Send the folder of -C, or this one, along; it runs there."),
]
Exclude: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="PATTERN", help="Leave matching files out of --upload. Repeatable."
    ),
]


def send_code(
    service: ServiceClient,
    jobs: Sequence[dict[str, Any]],
    *,
    upload: bool,
    exclude: Sequence[str] | None,
    trial: bool = False,
) -> None:
    """Upload the folder of each job, and make the job start in the uploaded code.

    Args:
        service: receives the code.
        jobs: changed in place.
        upload: whether uploading is requested.
        exclude: patterns of files to leave out.
        trial: whether nothing is to be sent.

    Raises:
        LeaseholdError: a folder cannot be packed, or the scheduler refuses it.
    """
    if not upload:
        if exclude:
            raise InputError("--exclude is about --upload; give both")
        return
    packed: dict[str, bytes] = {}
    sent: dict[tuple[str, str | None], str] = {}
    for job in jobs:
        folder, project = job.pop("working_dir", None) or os.getcwd(), job.get("project")  # noqa: PTH109 - a text
        if folder not in packed:
            packed[folder] = pack(Path(folder), exclude or ())
        if trial:
            continue
        if (folder, project) not in sent:
            sent[folder, project] = service.upload(packed[folder], project=project)
        job["upload"] = sent[folder, project]
