"""Options that say which jobs are meant."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import typer

from leasehold.cli.service.completion import complete_job, complete_project
from leasehold.cli.service.pairs import parse_pairs, split_list
from scheduler.errors import InputError

JobIds: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB]...",
        help="Jobs: ids, beginnings of ids, or names.",
        autocompletion=complete_job,
        show_default=False,
    ),
]
JobId: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The job: its id, the beginning of it, or its name.",
        autocompletion=complete_job,
    ),
]
Selector: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--selector",
        "-s",
        metavar="FIELD=VALUE",
        help="Instead of ids: status=, project=, job_type=, owner=, label.KEY=. Repeatable; all "
        "must hold.",
    ),
]
Statuses: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--status", metavar="A[,B...]", help="Only jobs in one of these."),
]
Projects: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--project",
        "-p",
        metavar="A[,B...]",
        help="Only jobs of these.",
        autocompletion=complete_project,
    ),
]
JobTypes: TypeAlias = Annotated[
    list[str] | None, typer.Option("--job-type", metavar="A[,B...]", help="Only these types.")
]
Owner: TypeAlias = Annotated[str | None, typer.Option("--owner", help="Only this one's jobs.")]
Labels: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", metavar="K=V", help="Only jobs with this label. Repeatable."),
]

_LISTS = ("status", "project", "job_type")


def chosen(ids: list[str] | None, selector: list[str] | None) -> dict[str, Any]:
    """Return the part of a bulk request that says which jobs are meant.

    Raises:
        InputError: neither or both were given, or the selector is malformed.
    """
    if bool(ids) == bool(selector):
        raise InputError("give job ids, or --selector FIELD=VALUE; not both")
    if ids:
        return {"ids": list(dict.fromkeys(ids))}
    return {"selector": _parse_selector(selector or [])}


def check_owner(name: str, *, option: str) -> None:
    """Refuse an owner without a name: an empty filter would let every job through.

    Raises:
        InputError: it is empty.
    """
    if not name.strip():
        raise InputError(f"{option} is '{name}'; give the owner's name, or leave it out")


def _parse_selector(items: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in parse_pairs(items, option="--selector").items():
        if key in _LISTS:
            made[key] = split_list([value], option=f"--selector {key}")
        elif key == "owner":
            check_owner(value, option="--selector owner")
            made[key] = value
        elif key.startswith("label.") and key != "label.":
            made.setdefault("labels", {})[key.removeprefix("label.")] = value
        else:
            fields = ", ".join((*_LISTS, "owner", "label.KEY"))
            raise InputError(f"--selector '{key}' is unknown; there are {fields}")
    return made
