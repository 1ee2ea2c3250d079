"""``--upload`` of ``submit`` and ``run``: code that is sent along with jobs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from leasehold.cli.jobspec.packing import IGNORE_FILE, pack
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.cli.session.client import ServiceClient

#: A refusal of more than this is about the size.
LARGE_BYTES: Final = 6 * 2**20

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
            sent[folder, project] = _send(service, folder, packed[folder], project)
        job["upload"] = sent[folder, project]


def _send(service: ServiceClient, folder: str, packed: bytes, project: str | None) -> str:
    try:
        return service.upload(packed, project=project)
    except InputError as error:
        if len(packed) < LARGE_BYTES:
            raise
        # Such a body may be refused before the scheduler knows that it is an upload.
        raise InputError(
            f"--upload: {folder} packs to {len(packed) / 2**20:.1f} MiB, which is too large "
            f"({error}); leave files out with --exclude or {IGNORE_FILE}"
        ) from error
