"""The view of use: the ledger of a month, budgets, and GPUs that hardly compute."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter
from starlette.responses import Response

from api.context import context_of
from api.pages.copying import as_command, as_curl, options
from api.pages.kept import kept
from api.pages.queries import read_values, write_query
from api.pages.rendering import render
from api.pages.routing import page
from api.routes.usage import usage_of
from api.schemas.fields import Month, ProjectName
from scheduler.control.state.budget_state import month_of
from scheduler.store.usage import DAY_S, UsageKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.datastructures import QueryParams
    from starlette.requests import Request

    from api.auth.roles import Principal
    from api.context import Context

#: Months that the view offers, and rows of its table.
MONTHS: Final = 12
ROWS: Final = 100
#: Seconds for which figures are kept.
KEPT_S: Final = 60.0
_BY: Final = (UsageKey.PROJECT.value, UsageKey.WORKER_TYPE.value)
_KINDS: Final[dict[str, TypeAdapter[Any]]] = {
    "by": TypeAdapter(UsageKey),
    "month": TypeAdapter(Month),
    "project": TypeAdapter(ProjectName),
}
_MOST: Final = {"by": len(UsageKey)}
#: Beginnings of a cell that a spreadsheet would compute.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthQuery:
    """What the URL of the view asks for.

    Attributes:
        month: as in ``2026-08``.
        since_s: its start, in UTC.
        until_s: its end, or now.
        by: the keys of the sums.
        project: only this project's use; empty for all.
        notes: parts of the URL that were left out, and why.
    """

    month: str
    since_s: float
    until_s: float
    by: tuple[str, ...]
    project: str
    notes: tuple[str, ...]

    @property
    def query(self) -> dict[str, str | tuple[str, ...]]:
        """The query of the view's URL."""
        return {"month": self.month, "by": self.by, "project": self.project}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The use of a month, as far as the page shows it.

    Attributes:
        total: the sums over all rows, and the window.
        rows: the cells of the keys, and the figures, of the rows that are shown.
        more: how many rows are not shown.
        days: (start of the day, worker-seconds) of each day, if they were added up by day.
        made_s: when they were added up.
    """

    total: Mapping[str, Any]
    rows: tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...]
    more: int
    days: tuple[tuple[float, float], ...]
    made_s: float

    @property
    def most_s(self) -> float:
        """The largest use of a day."""
        return max((worker_s for _, worker_s in self.days), default=0.0)


def read_wanted(query: QueryParams, now_s: float) -> MonthQuery:
    """Return what a URL asks for; this month without one, or with one that is still to come."""
    values, notes = read_values(query, _KINDS, most=_MOST, others=())
    since_s = month_of(now_s)[0]
    if values["month"]:
        begin_s = _begin(values["month"][-1])
        if 0 <= begin_s <= since_s:
            since_s = begin_s
        else:
            notes.append(f"month '{values['month'][-1]}': give one from 1970 to this month")
    return MonthQuery(
        month=_name(since_s),
        since_s=since_s,
        until_s=min(month_of(since_s)[1], now_s),
        by=values["by"] or _BY,
        project="".join(values["project"][-1:]),
        notes=tuple(notes),
    )


def _begin(month: str) -> float:
    try:
        return datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC).timestamp()
    except ValueError:  # the year 0
        return -1.0


def _name(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m}"


def _months(wanted: MonthQuery, now_s: float) -> list[str]:
    """Return the months to choose from, the newest first."""
    begin_s = month_of(now_s)[0]
    found: list[str] = []
    while len(found) < MONTHS and begin_s >= 0:
        found.append(_name(begin_s))
        begin_s = month_of(begin_s - 1)[0] if begin_s else -1.0
    return sorted({*found, wanted.month}, reverse=True)


async def show_usage(request: Request, principal: Principal) -> Response:
    """Show what to add up, budgets and idle GPUs; the page then asks for the figures."""
    context = context_of(request)
    wanted = read_wanted(request.query_params, context.now())
    leases = [one for one in context.service.leases() if principal.sees(one.project)]
    idle = [(one.idle_since_s, one) for one in leases if one.idle_since_s is not None]
    projects = [one for one in context.service.projects() if principal.sees(one.limits.project)]
    return render(
        request,
        "usage.html",
        view="Usage",
        wanted=wanted,
        months=_months(wanted, context.now()),
        keys=list(UsageKey),
        idle=[one for _, one in sorted(idle, key=lambda pair: pair[0])][:ROWS],
        budgets=[one for one in projects if one.budget is not None],
        figures=f"usage-figures{write_query(wanted.query)}",
        command=_command(wanted),
        curl=_curl(wanted),
    )


async def show_figures(request: Request, principal: Principal) -> Response:
    """Show the use of a month. Adding up 100,000 leases takes a second, so answers are kept."""
    context = context_of(request)
    wanted = read_wanted(request.query_params, context.now())
    key = "usage", wanted.month, wanted.by, wanted.project, principal.projects
    figures = await kept(context, key, lambda: _added_up(context, principal, wanted), for_s=KEPT_S)
    return render(
        request,
        "usage_figures.html",
        view="Usage",
        follows=False,
        wanted=wanted,
        figures=figures,
        download=f"usage/usage.csv{write_query(wanted.query)}",
    )


async def _added_up(context: Context, principal: Principal, wanted: MonthQuery) -> Figures:
    found = await _used(context, principal, wanted)
    return await context.heavily(_figures, found, wanted, context.now())


def _figures(found: Mapping[str, Any], wanted: MonthQuery, now_s: float) -> Figures:
    rows = found["usage"]
    by_day = UsageKey.DAY in wanted.by
    days: dict[float, float] = {}
    if by_day:
        first, last = int(wanted.since_s // DAY_S), math.ceil(wanted.until_s / DAY_S)
        days = {float(day * DAY_S): 0.0 for day in range(first, last)}
        for row in rows:
            days[row["day_s"]] = days.get(row["day_s"], 0.0) + row["worker_s"]
    else:
        rows = sorted(rows, key=lambda row: -row["worker_us"])
    return Figures(
        total={name: value for name, value in found.items() if name != "usage"},
        rows=tuple((tuple(_cell(row, key) for key in wanted.by), row) for row in rows[:ROWS]),
        more=max(len(rows) - ROWS, 0),
        days=tuple(sorted(days.items())),
        made_s=now_s,
    )


async def save_usage(request: Request, principal: Principal) -> Response:
    """Return the use of a month as CSV, with the columns of ``leasehold usage --csv``."""
    wanted = read_wanted(request.query_params, context_of(request).now())
    context = context_of(request)
    found = await _used(context, principal, wanted)
    text = await context.heavily(_write_csv, found["usage"], wanted.by)
    kept = f'attachment; filename="leasehold-usage-{wanted.month}.csv"'
    return Response(text, media_type="text/csv", headers={"content-disposition": kept})


def _write_csv(rows: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*keys, "leases", "worker_s", "gpu_used_s", "gpu_measured_s"])
    for row in rows:
        used_s = row["gpu_used_s"]
        figures = (f"{row['worker_s']:.6f}", "" if used_s is None else f"{used_s:.6f}")
        cells = (_inert(_cell(row, key)) for key in keys)
        writer.writerow([*cells, row["leases"], *figures, f"{row['gpu_measured_s']:.6f}"])
    return text.getvalue()


async def _used(context: Context, principal: Principal, wanted: MonthQuery) -> dict[str, Any]:
    return await usage_of(
        context,
        principal,
        by=[UsageKey(key) for key in wanted.by],
        since_s=wanted.since_s,
        until_s=wanted.until_s,
        project=wanted.project or None,
    )


def _cell(row: Mapping[str, Any], key: str) -> str:
    if key == UsageKey.DAY:
        return f"{datetime.fromtimestamp(row['day_s'], UTC):%Y-%m-%d}"
    return str(row[key])


def _inert(text: str) -> str:
    """Return a cell that a spreadsheet shows as it is, and does not compute."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _command(wanted: MonthQuery) -> str:
    since, until = (
        f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
        for at_s in (wanted.since_s, wanted.until_s)
    )
    given = {"by": ",".join(wanted.by), "since": since, "until": until, "project": wanted.project}
    return as_command("usage", *options(given))


def _curl(wanted: MonthQuery) -> str:
    window = {"since_s": f"{wanted.since_s:.0f}", "until_s": f"{wanted.until_s:.0f}"}
    return as_curl("usage", {"by": wanted.by, **window, "project": wanted.project})


ROUTES: Final = (
    page("/usage", show_usage),
    page("/usage-figures", show_figures),
    page("/usage/usage.csv", save_usage),
)
