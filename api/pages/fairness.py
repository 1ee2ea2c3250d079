"""The view of fairness: what the allocation gives projects and jobs, and what they received."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from api.context import context_of
from api.pages.copying import as_curl
from api.pages.queries import write_query
from api.pages.rendering import render
from api.pages.routing import page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal

#: Jobs of one page, projects of the view, and worker types with a column.
ROWS: Final = 50
MOST_PROJECTS: Final = 100
MOST_TYPES: Final = 8


async def show_fairness(request: Request, principal: Principal) -> Response:
    """Show projects and jobs, those furthest behind first."""
    context = context_of(request)
    service, number = context.service, _page_number(request.query_params.get("page", ""))
    page_of = partial(service.jobs_behind, projects=frozenset(principal.projects), count=ROWS)
    found = page_of(first=(number - 1) * ROWS)
    if found.count and not found.jobs:
        number = -(-found.count // ROWS)
        found = page_of(first=(number - 1) * ROWS)
    live = service.live([one.job_id for one in found.jobs])
    types = sorted({name for one in found.jobs for name in (*one.due, *one.received)})
    projects = [
        one
        for one in service.projects()
        if one.dues is not None and principal.sees(one.limits.project)
    ]
    projects.sort(key=lambda one: -((one.dues and one.dues.owed_worker_s) or 0.0))
    return render(
        request,
        "fairness.html",
        view="Fairness",
        allocation=found,
        jobs=[(one, live.get(one.job_id)) for one in found.jobs],
        count=found.count,
        types=types[:MOST_TYPES],
        more_types=types[MOST_TYPES:],
        projects=projects[:MOST_PROJECTS],
        more_projects=max(len(projects) - MOST_PROJECTS, 0),
        number=number,
        first=write_query({}) if number > 1 else None,
        next=write_query({"page": str(number + 1)}) if number * ROWS < found.count else None,
        curl=as_curl("allocation", {}),
    )


def _page_number(text: str) -> int:
    """Return the number of a page, 1 if the text is none."""
    return max(int(text), 1) if text.isascii() and text.isdigit() and len(text) <= 6 else 1


ROUTES: Final = (page("/fairness", show_fairness),)
