"""The view of jobs: filters, order, pages, and why each job waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from api.context import context_of
from api.jobs.selection import ACTIVE, page_of_jobs, values_of, visible_projects
from api.pages.copying import as_command, as_curl, options
from api.pages.kept import kept
from api.pages.queries import read_values, write_query
from api.pages.rendering import render
from api.pages.routing import page
from api.schemas.fields import JobId
from api.schemas.filters import kind_of
from scheduler.control.facts.requests import JobAction
from scheduler.domain.jobs.job import JobStatus
from scheduler.errors import InputError, UnstorableError
from scheduler.store.filters import FILTERS, JobFilter
from scheduler.store.queries import JobKey, JobOrder, JobQuery

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.datastructures import QueryParams
    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal
    from scheduler.store.protocol import Store

#: Jobs of one page, and groups of the list of groups.
ROWS: Final = 50
MOST_GROUPS: Final = 200
#: Seconds for which groups are kept: counting 100,000 jobs takes a part of a second.
KEPT_S: Final = 5.0
#: Name in the URL -> form of its values.
_KINDS: Final = {one.name: TypeAdapter(kind_of(one)) for one in FILTERS} | {"q": TypeAdapter(JobId)}
_MOST: Final = {one.name: one.most or 1 for one in FILTERS} | {"q": 1}
_OTHERS: Final = ("label", "sort", "group", "cursor")
_MOST_LABELS: Final = 64
#: Links above the list: title -> statuses.
_TABS: Final[Mapping[str, tuple[str, ...]]] = {
    "all": (),
    "active": tuple(one.value for one in ACTIVE),
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
        group: by what jobs are counted; None: they are listed.
        cursor: of the page; None for the first one.
        notes: parts of the URL that were left out, and why.
    """

    filters: Mapping[str, tuple[str, ...]]
    called: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    sort: str = "-submitted"
    group: JobKey | None = None
    cursor: str | None = None
    notes: tuple[str, ...] = ()

    def url(self, **changes: Any) -> str:
        """Return the relative URL of the view with some parts changed; from its first page on."""
        parts: dict[str, Any] = {**self.filters, "q": self.called, "sort": self.sort}
        parts |= {"label": self.label_texts, "group": self.group or ""}
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
    values, notes = read_values(query, _KINDS, most=_MOST, others=_OTHERS)
    filters = {one.name: values[one.name] for one in FILTERS}
    called = values["q"]
    sort = query.get("sort", "-submitted")
    if sort.removeprefix("-") not in set(JobOrder):
        notes.append(f"sort '{sort[:60]}': must be one of {', '.join(JobOrder)}")
        sort = "-submitted"
    group = query.get("group", "")
    if group and group not in set(JobKey):
        notes.append(f"group '{group[:60]}': must be one of {', '.join(JobKey)}")
        group = ""
    return Wanted(
        filters=filters,
        called=called[-1] if called else "",
        labels=_labels(query.getlist("label"), notes),
        sort=sort,
        group=JobKey(group) if group else None,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Jobs that have a project, an owner or a type in common.

    Attributes:
        value: which.
        counts: status -> jobs.
    """

    value: str
    counts: Mapping[JobStatus, int]

    @property
    def total(self) -> int:
        """All its jobs."""
        return sum(self.counts.values())

    @property
    def place(self) -> tuple[int, int, str]:
        """Its place in the list: those with many active jobs first."""
        return -sum(self.counts.get(one, 0) for one in ACTIVE), -self.total, self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups that the list shows, the statuses of their jobs, and how many are left out."""

    shown: tuple[Group, ...] = ()
    statuses: tuple[JobStatus, ...] = ()
    more: int = 0


async def show_jobs(request: Request, principal: Principal) -> Response:
    """Show a page of jobs, or how many jobs groups of them have."""
    wanted = read_wanted(request.query_params)
    if wanted.group is None:
        return await _show_list(request, principal, wanted)
    groups = await kept(
        context_of(request),
        ("groups", wanted.url(sort=""), principal.projects),
        lambda: _groups(request, principal, wanted),
        for_s=KEPT_S,
    )
    return _show(request, principal, wanted, groups=groups)


async def _groups(request: Request, principal: Principal, wanted: Wanted) -> Groups:
    where, context = wanted.where(principal), context_of(request)
    if where is None or wanted.group is None:
        return Groups()
    return await context.heavily(_counted, context.store, where, wanted.group)


def _counted(store: Store, where: JobFilter, by: JobKey) -> Groups:
    """Count jobs; it blocks: each job may be a group of its own."""
    found = store.count_jobs(where, by)
    groups = (Group(value=value, counts=counts) for value, counts in found.items())
    shown = nsmallest(MOST_GROUPS, groups, key=lambda group: group.place)
    return Groups(
        shown=tuple(shown),
        statuses=tuple(one for one in JobStatus if any(one in group.counts for group in shown)),
        more=len(found) - len(shown),
    )


async def _show_list(request: Request, principal: Principal, wanted: Wanted) -> Response:
    context = context_of(request)
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
    waiting = [job["job_id"] for job in jobs if job["status"] == JobStatus.WAITING]
    return _show(
        request,
        principal,
        wanted,
        jobs=jobs,
        starts=context.service.starts(waiting),
        next=next_cursor,
        notes=notes,
    )


def _show(request: Request, principal: Principal, wanted: Wanted, **values: object) -> Response:
    service = context_of(request).service
    command, curl = _copies(wanted)
    shown: dict[str, Any] = {"notes": wanted.notes, "groups": None} | values
    return render(
        request,
        "jobs.html",
        view="Jobs",
        wanted=wanted,
        keys=tuple(JobKey),
        tabs=_TABS,
        actions=tuple(JobAction),
        cluster=service.cluster() if service.health().leading and not principal.projects else None,
        command=command,
        curl=curl,
        **shown,
    )


def _copies(wanted: Wanted) -> tuple[str, str]:
    """Return the command and the call that list the same jobs; empty if there is none."""
    if wanted.group is not None:
        return "", ""
    sort = "" if wanted.sort == "-submitted" else wanted.sort
    rest = {"label": tuple(wanted.label_texts), "sort": sort}
    curl = as_curl("jobs", {**wanted.filters, "called": wanted.called, **rest})
    if wanted.called or any("," in value for values in wanted.filters.values() for value in values):
        return "", curl  # the command has no such filter, and takes values with commas between them
    filters = {one.flag.removeprefix("--"): ",".join(wanted.filters[one.name]) for one in FILTERS}
    return as_command("jobs", *options({**filters, **rest})), curl


ROUTES: Final = (page("/", show_jobs), page("/jobs", show_jobs))
