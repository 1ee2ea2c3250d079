"""``leasehold project``: shares and quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leasehold.cli.service.completion import complete_project
from leasehold.cli.service.groups import group_with_default
from leasehold.cli.service.output import number, print_json, print_shown, table
from leasehold.cli.service.remote import Json, remote
from scheduler.errors import InputError

if TYPE_CHECKING:
    from leasehold.cli.service.client import ServiceClient
    from leasehold.client.forms import Project

#: Columns that every table of projects has.
_PLAIN: Final = 8
#: What lifts a rule.
_ANY: Final = "none"

app = typer.Typer(help="Show projects, or set what one may have.", cls=group_with_default("list"))


@app.command("list")
@remote
def list_projects(service: ServiceClient, *, as_json: Json = False) -> None:
    """List the projects that have limits or active jobs."""
    found = service.projects()
    if as_json:
        print_json({"projects": found})
        return
    print_shown(_table(found) if found else "no projects")


@app.command("set")
@remote
def set_project(
    service: ServiceClient,
    name: Annotated[str, typer.Argument(help="The project.", autocompletion=complete_project)],
    *,
    weight: Annotated[
        float | None, typer.Option("--weight", help="Its share relative to other projects.")
    ] = None,
    inner_policy: Annotated[
        str | None, typer.Option("--inner-policy", help="Among its jobs: fairness or fifo.")
    ] = None,
    max_workers: Annotated[
        str | None,
        typer.Option("--max-workers", metavar="N", help="Workers at once, or none for any number."),
    ] = None,
    max_jobs: Annotated[
        str | None,
        typer.Option("--max-jobs", metavar="N", help="Jobs at once, or none for any number."),
    ] = None,
    entities: Annotated[
        str | None,
        typer.Option(
            "--entities",
            metavar="A[,B...]",
            help="Entities besides itself that its jobs may name; empty for itself alone.",
        ),
    ] = None,
    job_types: Annotated[
        str | None,
        typer.Option(
            "--job-types",
            metavar="A[,B...]",
            help="Patterns of job types besides PROJECT/* that its jobs may name.",
        ),
    ] = None,
    max_job_weight: Annotated[
        str | None,
        typer.Option(
            "--max-job-weight",
            metavar="X",
            help="Largest weight of one of its jobs, or none.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Set what a project may have; what is not given stays."""
    changes: dict[str, Any] = {}
    if weight is not None:
        changes["weight"] = weight
    if inner_policy is not None:
        changes["inner_policy"] = inner_policy
    if max_workers is not None:
        changes["max_workers"] = _quota(max_workers, "--max-workers")
    if max_jobs is not None:
        changes["max_jobs"] = _quota(max_jobs, "--max-jobs")
    if entities is not None:
        changes["entities"] = _names(entities)
    if job_types is not None:
        changes["job_types"] = _names(job_types)
    if max_job_weight is not None:
        changes["max_job_weight"] = _weight(max_job_weight, "--max-job-weight")
    if not changes:
        raise InputError(
            "nothing to set; give --weight, --inner-policy, --max-workers, --max-jobs, "
            "--entities, --job-types, --max-job-weight"
        )
    known = [dict(p["limits"]) for p in service.projects()]
    before = next((limits for limits in known if limits["project"] == name), {})
    limits: Any = {key: value for key, value in before.items() if key != "project"} | changes
    made = service.set_project(name, **limits)
    if as_json:
        print_json(made)
    else:
        print_shown(_table([made]))


def _quota(text: str, option: str) -> int | None:
    if text.strip().lower() == "none":
        return None
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{option} is '{text}'; give a whole number, or none") from None


def _names(text: str) -> list[str] | None:
    if text.strip().lower() == _ANY:
        return None
    return [name for part in text.split(",") if (name := part.strip())]


def _weight(text: str, option: str) -> float | None:
    if text.strip().lower() == _ANY:
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option} is '{text}'; give a number, or {_ANY}") from None


def _table(projects: list[Project]) -> Any:
    headings = (
        "project", ">weight", "inside", ">running", ">admitted", ">max workers", ">jobs",
        ">max jobs", "entities", "job types", ">max job weight", ">used of late",
        ">weight counts as",
    )  # fmt: skip
    rows = [
        (
            p["limits"]["project"],
            number(p["limits"]["weight"]),
            p["limits"]["inner_policy"],
            p["running_workers"],
            p["admitted_workers"],
            p["limits"]["max_workers"],
            p["active_jobs"],
            p["limits"]["max_jobs"],
            _words(p["limits"].get("entities")),  # an older scheduler tells none
            _words(p["limits"].get("job_types")),
            _words(p["limits"].get("max_job_weight")),
            _hours(p.get("usage_worker_s")),
            _counts_as(p.get("effective_weight")),
        )
        for p in projects
    ]
    # Rules that no project has need no column.
    shown = [c for c in range(len(headings)) if c < _PLAIN or any(row[c] for row in rows)]
    return table([headings[c] for c in shown], [[row[c] for c in shown] for row in rows])


def _hours(worker_s: float | None) -> str:
    return "" if worker_s is None else f"{worker_s / 3600:.1f} h"


def _counts_as(weight: float | None) -> str:
    return "" if weight is None else f"{weight:.2f}"


def _words(rule: Any) -> str:
    if isinstance(rule, list):
        return ", ".join(rule) or "its own"
    return number(rule)
