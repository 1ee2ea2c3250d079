"""The view of jobs: filters, order, pages, and why each job waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from api.context import context_of
from api.jobs.selection import page_of_jobs, values_of, visible_projects
from api.pages.queries import read_values, write_query
from api.pages.rendering import render
from api.pages.routing import page
from api.schemas.fields import JobId
from api.schemas.filters import kind_of
from scheduler.control.facts.requests import JobAction
from scheduler.domain.jobs.job import JobStatus
from scheduler.errors import InputError, UnstorableError
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
#: Name in the URL -> form of its values.
_KINDS: Final = {one.name: TypeAdapter(kind_of(one)) for one in FILTERS} | {"q": TypeAdapter(JobId)}
_MOST: Final = {one.name: one.most or 1 for one in FILTERS} | {"q": 1}
_MOST_LABELS: Final = 64
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
        parts["label"] = self.label_texts
        parts |= changes
        if parts["sort"] == "-submitted":
            del parts["sort"]
        return write_query(parts)

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
        parts += [f"label {text}" for text in self.label_texts]
        parts += [f"name or id {self.called}"] if self.called else []
        return ", ".join(parts)

    @property
    def tab(self) -> str:
        """The title of the link that shows these statuses; empty if there is none."""
        mine = sorted(self.filters.get("status", ()))
        return next((title for title, some in _TABS.items() if sorted(some) == mine), "")

    @property
    def label_texts(self) -> list[str]:
        """The labels as they stand in the URL."""
        return [f"{key}={value}" for key, value in self.labels.items()]

    @property
    def is_narrowed_further(self) -> bool:
        """Whether anything but the status leaves jobs out."""
        others = (values for name, values in self.filters.items() if name != "status")
        return bool(self.called or self.labels or any(others))

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves any job out."""
        return self.is_narrowed_further or bool(self.filters.get("status"))


def read_wanted(query: QueryParams) -> Wanted:
    """Return what a URL asks for; what cannot be read is left out, and noted."""
    values, notes = read_values(query, _KINDS, most=_MOST, others=("label", "sort", "cursor"))
    filters = {one.name: values[one.name] for one in FILTERS}
    called = values["q"]
    sort = query.get("sort", "-submitted")
    if sort.removeprefix("-") not in set(JobOrder):
        notes.append(f"sort '{sort[:60]}': must be one of {', '.join(JobOrder)}")
        sort = "-submitted"
    return Wanted(
        filters=filters,
        called=called[-1] if called else "",
        labels=_labels(query.getlist("label"), notes),
        sort=sort,
        cursor=query.get("cursor", "")[:2000] or None,
        notes=tuple(notes),
    )


def _labels(given: list[str], notes: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in [part for part in given if part]:
        key, sign, value = text.partition("=")
        if not (sign and key.strip() and len(text) <= 400 and "\0" not in text):
            notes.append(f"label '{text[:60]}': must be key=value")
        elif key.strip() in found or len(found) == _MOST_LABELS:
            notes.append(f"label '{text[:60]}': one value of a key, and {_MOST_LABELS} labels")
        else:
            found[key.strip()] = value.strip()
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
        except (InputError, UnstorableError, RecursionError):  # a cursor of another order, or none
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
