"""The view of the history: lines of everything that the caller may see, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from api.auth.roles import Role
from api.context import context_of
from api.history import HistoryFilter, HistoryReader
from api.jobs.conversions import event_answer
from api.pages.copying import as_curl
from api.pages.queries import read_values, write_query
from api.pages.rendering import render
from api.pages.routing import page
from api.schemas.fields import Line, ProjectName
from scheduler.views.history_kinds import EventKind, SubjectKind

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal

#: Lines of one page.
ROWS: Final = 50
_KINDS: Final[dict[str, TypeAdapter[Any]]] = {
    "about": TypeAdapter(SubjectKind),
    "subject": TypeAdapter(Line),
    "kind": TypeAdapter(EventKind),
    "by": TypeAdapter(Line),
    "project": TypeAdapter(ProjectName),
}
#: Names of filters that differ in the REST interface.
_REST_NAMES: Final = {"about": "subject_kind", "by": "actor"}


async def show_events(request: Request, principal: Principal) -> Response:
    """Show a page of the history."""
    values, notes = read_values(request.query_params, _KINDS, most={"kind": 50}, others=("before",))
    one = {name: found[-1] if found else "" for name, found in values.items()}
    wanted = HistoryFilter(
        subject_kind=one["about"],
        subject=one["subject"],
        kinds=values["kind"],
        actor=one["by"],
        project=one["project"] or None,
    )
    reader = HistoryReader(context=context_of(request), principal=principal, wanted=wanted)
    before = _event_id(request.query_params.get("before", ""))
    rows, last = await reader.page(after=0, before=before, descending=True, limit=ROWS)
    # If lines are hidden from the caller, a page may have few lines with older ones behind them.
    has_all = principal.has(Role.ADMIN) and not principal.projects
    has_older = last > 1 and (len(rows) == ROWS or not has_all)
    kept = {name: found for name, found in values.items() if found}
    return render(
        request,
        "events.html",
        view="Events",
        events=[event_answer(row, principal) for row in rows],
        one=one,
        chosen=values["kind"],
        notes=notes,
        abouts=[kind.value for kind in SubjectKind],
        kinds=[kind.value for kind in EventKind],
        first=write_query(kept) if before is not None else None,
        next=write_query({**kept, "before": str(last)}) if has_older else None,
        curl=as_curl(
            "events",
            {
                **{_REST_NAMES.get(name, name): found for name, found in values.items()},
                "descending": "true",
                "before": "" if before is None else str(before),
            },
        ),
    )


def _event_id(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) <= 18 else None


ROUTES: Final = (page("/events", show_events),)
