"""The view of jobs: filters, order, pages, and why each job waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from pydantic import TypeAdapter, ValidationError

from api.context import context_of
from api.jobs.selection import page_of_jobs, values_of, visible_projects
from api.pages.rendering import render
from api.pages.routing import page
from api.problems import field_problems
from api.schemas.fields import JobId
from api.schemas.filters import kind_of
from scheduler.control.facts.requests import JobAction
from scheduler.domain.jobs.job import JobStatus
from scheduler.errors import InputError
from scheduler.store.filters import FILTERS, JobFilter
from scheduler.store.queries import JobOrder, JobQuery

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.datastructures import QueryParams
    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal

#: Jobs of one page.
ROWS: Final = 50
#: Problems of a URL that a page names.
_MOST_NOTES: Final = 5
#: Name in the URL -> form of its values.
_KINDS: Final = {one.name: TypeAdapter(kind_of(one)) for one in FILTERS} | {"q": TypeAdapter(JobId)}
_MOST: Final = {one.name: one.most or 1 for one in FILTERS}
#: Statuses of jobs that have not ended, of which one is chosen by one link.
_ACTIVE: Final = ("waiting", "running", "held")
#: Links above the list: title -> statuses.
_TABS: Final[Mapping[str, tuple[str, ...]]] = {
    "all": (),
    "active": _ACTIVE,
    **{status.value: (status.value,) for status in JobStatus},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the URL of the view asks for.

    Attributes:
        filters: name of a filter -> its values.
        called: the beginning of an id, or a name; empty for none.
        labels: labels that a job must have.
        sort: the order; ``-`` before it puts the largest first.
        cursor: of the page; None for the first one.
        notes: parts of the URL that were left out, and why.
    """

    filters: Mapping[str, tuple[str, ...]]
    called: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    sort: str = "-submitted"
    cursor: str | None = None
    notes: tuple[str, ...] = ()

    def url(self, **changes: Any) -> str:
        """Return the relative URL of the view with some parts changed; from its first page on."""
        parts: dict[str, Any] = {**self.filters, "q": self.called, "sort": self.sort}
        parts["label"] = [f"{key}={value}" for key, value in self.labels.items()]
        parts |= changes
        if parts["sort"] == "-submitted":
            del parts["sort"]
        given = [
            (name, value)
            for name, values in parts.items()
            for value in ([values] if isinstance(values, str) else values)
            if value
        ]
        return f"?{urlencode(given)}"

    def where(self, principal: Principal) -> JobFilter | None:
        """Return the filter for the store; None if the caller can see none of these jobs."""
        projects = visible_projects(principal, self.filters["project"])
        if projects is None:
            return None
        given = {
            one.name: self.filters[one.name] if one.most else "".join(self.filters[one.name])
            for one in FILTERS
        }
        values = values_of(given) | {"projects": projects}
        return JobFilter(**values, labels=self.labels, called=self.called)

    @property
    def in_words(self) -> str:
        """The filters as people read them."""
        parts = [
            f"{name.replace('_', ' ')} {' or '.join(values)}"
            for name, values in self.filters.items()
            if values
        ]
        parts += [f"label {key}={value}" for key, value in self.labels.items()]
        parts += [f"name or id {self.called}"] if self.called else []
        return ", ".join(parts)

    @property
    def tab(self) -> str:
        """The title of the link that shows these statuses; empty if there is none."""
        mine = sorted(self.filters.get("status", ()))
        return next((title for title, some in _TABS.items() if sorted(some) == mine), "")

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves any job out."""
        return bool(self.called or self.labels or any(self.filters.values()))


def read_wanted(query: QueryParams) -> Wanted:
    """Return what a URL asks for; what cannot be read is left out, and noted."""
    notes: list[str] = []
    filters = {
        name: tuple(_values(query, name, notes)[: _MOST[name]]) for name in _KINDS if name != "q"
    }
    called = _values(query, "q", notes)
    sort = query.get("sort", "-submitted")
    if sort.removeprefix("-") not in set(JobOrder):
        notes.append(f"sort '{sort[:60]}': must be one of {', '.join(JobOrder)}")
        sort = "-submitted"
    return Wanted(
        filters=filters,
        called=called[-1] if called else "",
        labels=_labels(query.getlist("label"), notes),
        sort=sort,
        cursor=query.get("cursor"),
        notes=tuple(notes[:_MOST_NOTES]),
    )


def _values(query: QueryParams, name: str, notes: list[str]) -> list[str]:
    found = []
    for text in dict.fromkeys(part for part in query.getlist(name)[:100] if part):
        try:
            found.append(str(_KINDS[name].validate_python(text.strip())))
        except ValidationError as error:
            (problem, *_) = field_problems(error.errors())
            notes.append(f"{name} '{text[:60]}': {problem.problem}")
    return found


def _labels(given: list[str], notes: list[str]) -> dict[str, str]:
    found = {}
    for text in [part for part in given if part][:64]:
        key, sign, value = text.partition("=")
        if sign and key and len(text) <= 400 and "\0" not in text:
            found[key.strip()] = value.strip()
        else:
            notes.append(f"label '{text[:60]}': must be key=value")
    return found


async def show_jobs(request: Request, principal: Principal) -> Response:
    """Show a page of jobs."""
    context = context_of(request)
    wanted = read_wanted(request.query_params)
    where = wanted.where(principal)
    jobs: list[dict[str, Any]] = []
    next_cursor, notes = None, list(wanted.notes)
    if where is not None:
        query = JobQuery(
            where=where,
            order=JobOrder(wanted.sort.removeprefix("-")),
            descending=wanted.sort.startswith("-"),
            limit=ROWS,
            cursor=wanted.cursor,
        )
        try:
            jobs, next_cursor = await page_of_jobs(context, query)
        except InputError:  # a cursor of another order, or a damaged one
            notes.append(
                "the page that the address names does not exist any more; this is the first"
            )
            first = JobQuery(
                where=where, order=query.order, descending=query.descending, limit=ROWS
            )
            jobs, next_cursor = await page_of_jobs(context, first)
    return render(
        request,
        "jobs.html",
        view="Jobs",
        jobs=jobs,
        next=next_cursor,
        wanted=wanted,
        notes=notes,
        tabs=_TABS,
        actions=tuple(JobAction),
        cluster=context.service.cluster() if context.service.health().leading else None,
    )


ROUTES: Final = (page("/", show_jobs), page("/jobs", show_jobs))
