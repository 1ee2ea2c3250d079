"""``leasehold project``: shares and quotas."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leasehold.cli.display.output import (
    format_number,
    format_percent,
    print_json,
    print_shown,
    table,
)
from leasehold.cli.reading.pairs import parse_number
from leasehold.cli.session.completion import complete_project
from leasehold.cli.session.groups import group_with_default
from leasehold.cli.session.near_names import remark_on_worker_types
from leasehold.cli.session.remote import Json, remote
from leasehold.cli.session.wording import wording_of
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import Project

#: Columns to drop, one after the other, if the terminal is too narrow.
_SPARE: Final = (
    "inside", "weight counts as", "recent use", "job types", "entities", "max job weight",
    "admitted", "max jobs", "running",
)  # fmt: skip
#: Possible uses of idle quota.
_IDLE: Final = ("keep", "lend", "share")
#: Units of budgets, and the fields that they stand for.
_UNITS: Final = {"gpu-hours": "budget_gpu_hours", "usd": "budget_usd"}
#: Largest quota, and largest budget.
_MOST: Final = 10**9
_MOST_BUDGET: Final = 1e12
#: Quotas by worker type.
_BY_TYPE: Final = ("max_workers_of", "max_workers_per_user_of")
#: The command's names for its fields.
_WORDING: Final = wording_of(
    project="the project",
    max_workers="--max-workers",
    max_workers_of="--max-workers",
    max_workers_per_user="--max-workers-per-user",
    max_workers_per_user_of="--max-workers-per-user",
    idle_quota="--idle-quota",
    entities="--entities",
    job_types="--job-types",
    max_job_weight="--max-job-weight",
    budget_gpu_hours="--budget",
    budget_usd="--budget",
    budget_warning="--budget-warning",
)
#: Value that removes a rule.
_ANY: Final = "none"

app = typer.Typer(help="Show projects, or set the limits of one.", cls=group_with_default("list"))


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
        typer.Option(
            "--max-workers",
            metavar="N|TYPE=N[,...]",
            help="Workers that its jobs may hold at once: of all types, of some, or both, as in "
            "8,v100=4; none for any number.",
        ),
    ] = None,
    max_workers_per_user: Annotated[
        str | None,
        typer.Option(
            "--max-workers-per-user",
            metavar="N|TYPE=N[,...]",
            help="The same for the jobs of each of its users.",
        ),
    ] = None,
    idle_quota: Annotated[
        str | None,
        typer.Option(
            "--idle-quota",
            metavar="keep|lend|share",
            help="Use of workers of --max-workers that its jobs do not ask for: "
            "they stay idle, are lent until its jobs ask, or are lent and "
            "those of others used.",
        ),
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
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="'N gpu-hours[, M usd]'",
            help="Worker-hours that it may use in a calendar month of UTC, or none.",
        ),
    ] = None,
    budget_warning: Annotated[
        float | None,
        typer.Option("--budget-warning", metavar="PART", help="Warn from this part of it on."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Set a project's limits; options that are not given keep their values."""
    given = {
        "weight": weight,
        "inner_policy": inner_policy,
        "max_workers": max_workers,
        "max_workers_per_user": max_workers_per_user,
        "idle_quota": idle_quota,
        "max_jobs": max_jobs,
        "entities": entities,
        "job_types": job_types,
        "max_job_weight": max_job_weight,
        "budget": budget,
        "budget_warning": budget_warning,
    }
    changes: dict[str, Any] = {}
    for option, value in given.items():
        if value is not None:
            changes |= _READ[option](value)
    if not changes:
        raise InputError(
            "nothing to set; give --weight, --inner-policy, --max-workers, "
            "--max-workers-per-user, --idle-quota, --max-jobs, --entities, --job-types, "
            "--max-job-weight, --budget, --budget-warning"
        )
    known = [dict(p["limits"]) for p in service.projects()]
    before = next((limits for limits in known if limits["project"] == name), {})
    limits: Any = {key: value for key, value in before.items() if key != "project"} | changes
    types = {name for key in _BY_TYPE for name in changes.get(key) or ()}
    remark_on_worker_types(service, sorted(types))
    service.wording = _WORDING
    made = service.set_project(name, **limits)
    if as_json:
        print_json(made)
    else:
        print_shown(_table([made]))


def _quota(text: str, option: str) -> int | None:
    if text.strip().lower() == "none":
        return None
    found = _whole(text)
    if found is None:
        raise InputError(f"{option} is '{text}'; give a whole number up to {_MOST}, or none")
    return found


def _whole(text: str) -> int | None:
    """Return a number of workers or jobs; None if the text is not a number."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > len(str(_MOST)):
        return None
    return found if (found := int(digits)) <= _MOST else None


def _workers(text: str, field: str, option: str) -> dict[str, Any]:
    """Return a quota of workers: of all types, and by type."""
    whole: int | None = None
    of: dict[str, int] = {}
    if text.strip().lower() == _ANY:
        return {field: None, f"{field}_of": {}}
    for part in text.split(","):
        name, equals, most = part.strip().rpartition("=")
        name = name.strip()
        number_of = _whole(most)
        if number_of is None or (equals and not name):
            raise InputError(
                f"{option} is '{text}'; give whole numbers up to {_MOST}, as in 8, v100=4,k80=8 or "
                f"8,v100=4, or {_ANY}"
            )
        if name in of or (not equals and whole is not None):
            twice = f"names '{name}'" if equals else "gives all types"
            raise InputError(f"{option} is '{text}', which {twice} twice; give each once")
        if equals:
            of[name] = number_of
        else:
            whole = number_of
    return {field: whole, f"{field}_of": of}


def _idle(text: str) -> str:
    if text not in _IDLE:
        raise InputError(f"--idle-quota is '{text}'; give {', '.join(_IDLE)}")
    return text


def _names(text: str) -> list[str] | None:
    if text.strip().lower() == _ANY:
        return None
    return [name for part in text.split(",") if (name := part.strip())]


def _weight(text: str, option: str) -> float | None:
    if text.strip().lower() == _ANY:
        return None
    try:
        return parse_number(text)
    except ValueError:
        raise InputError(f"{option} is '{text}'; give a finite number, or {_ANY}") from None


def _table(projects: list[Project]) -> Any:
    headings = (
        "project", ">weight", "inside", ">running", ">admitted", ">max workers", ">jobs",
        ">max jobs", "entities", "job types", ">max job weight", ">recent use",
        ">weight counts as",
        ">max per user", "idle quota", "budget of the month", "used", "state",
    )  # fmt: skip
    rows = [
        (
            p["limits"]["project"],
            format_number(p["limits"]["weight"]),
            p["limits"]["inner_policy"],
            p["running_workers"],
            p["admitted_workers"],
            _most(p["limits"], "max_workers"),
            p["active_jobs"],
            p["limits"]["max_jobs"],
            _words(p["limits"].get("entities")),  # an older scheduler sends none
            _words(p["limits"].get("job_types")),
            _words(p["limits"].get("max_job_weight")),
            _hours(p.get("usage_worker_s")),
            _counts_as(p.get("effective_weight")),
            _most(p["limits"], "max_workers_per_user"),
            p["limits"].get("idle_quota", "keep").replace("keep", ""),
            *_budget_cells(p),
        )
        for p in projects
    ]
    return table(headings, rows, spare=_SPARE, wrapped=True)


def _budget(text: str) -> dict[str, float | None]:
    found: dict[str, float | None] = {"budget_gpu_hours": None, "budget_usd": None}
    if text.strip().lower() == _ANY:
        return found
    for part in text.split(","):
        amount, _, unit = part.strip().partition(" ")
        try:
            field, value = _UNITS[unit.strip().lower()], parse_number(amount)
        except (KeyError, ValueError):
            value = -1.0
        if not 0.0 <= value <= _MOST_BUDGET:
            raise InputError(
                f"--budget is '{text}'; give '500 gpu-hours', '1000 usd', both with a comma, or "
                f"{_ANY}; {_MOST_BUDGET:g} at most"
            )
        if found[field] is not None:
            raise InputError(
                f"--budget is '{text}', which gives {unit.strip()} twice; give it once"
            )
        found[field] = value
    return found


def _budget_cells(project: Project) -> tuple[str, str, str]:
    budget, limits = project.get("budget"), project["limits"]
    if budget is None:
        return "", "", ""
    may, used = [], []
    if (hours := limits.get("budget_gpu_hours")) is not None:
        may.append(f"{format_number(hours)} gpu-hours")
        used.append(_used(budget["used_gpu_hours"], hours))
    if (usd := limits.get("budget_usd")) is not None:
        may.append(f"{format_number(usd)} usd")
        used.append(_used(budget["used_usd"], usd))
    return ", ".join(may), f"{', '.join(used)} ({format_percent(budget['part'])})", budget["state"]


def _used(used: float, budget: float) -> str:
    """Write the used part of a budget, to a hundredth of it or finer."""
    digits = 2 if budget <= 0.0 else max(2, 2 - math.floor(math.log10(budget)))
    return f"{used:.{digits}f}"


def _hours(worker_s: float | None) -> str:
    return "" if worker_s is None else f"{worker_s / 3600:.1f} h"


def _counts_as(weight: float | None) -> str:
    return "" if weight is None else f"{weight:.2f}"


#: Option -> function from its value to the fields that it sets.
_READ: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = {
    "weight": lambda given: {"weight": given},
    "inner_policy": lambda given: {"inner_policy": given},
    "max_workers": lambda given: _workers(given, "max_workers", "--max-workers"),
    "max_workers_per_user": lambda given: _workers(
        given, "max_workers_per_user", "--max-workers-per-user"
    ),
    "idle_quota": lambda given: {"idle_quota": _idle(given)},
    "max_jobs": lambda given: {"max_jobs": _quota(given, "--max-jobs")},
    "entities": lambda given: {"entities": _names(given)},
    "job_types": lambda given: {"job_types": _names(given)},
    "max_job_weight": lambda given: {"max_job_weight": _weight(given, "--max-job-weight")},
    "budget": _budget,
    "budget_warning": lambda given: {"budget_warning": given},
}


def _most(limits: Any, field: str) -> Any:
    """Return a quota of workers as the user writes it, empty without one."""
    whole, of = limits.get(field), limits.get(f"{field}_of") or {}
    if not of:
        return whole
    parts = [] if whole is None else [str(whole)]
    return ",".join([*parts, *(f"{name}={most}" for name, most in sorted(of.items()))])


def _words(rule: Any) -> str:
    if isinstance(rule, list):
        return ", ".join(rule) or "its own"
    return format_number(rule)
