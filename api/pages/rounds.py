"""The view of rounds: the leases of a window on a time line, and those of the next round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from api.context import context_of
from api.jobs.selection import attempts_page, projects_of
from api.pages.copying import as_curl
from api.pages.queries import write_query
from api.pages.rendering import render
from api.pages.routing import page
from api.threads import in_thread
from scheduler.domain.jobs.fields import LATEST_S
from scheduler.store.queries import AttemptQuery

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from starlette.datastructures import QueryParams
    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal
    from api.context import Context
    from scheduler.views.types import ClusterView, PlanView

#: Bars and leases of the time line, rows of a table, nodes of a page, lines between rounds.
MOST_BARS: Final = 300
MOST_LEASES: Final = 150
ROWS: Final = 40
NODES: Final = 25
MOST_LINES: Final = 60
#: Word in the URL -> length of the window.
SPANS: Final[Mapping[str, float]] = {
    "10m": 600.0,
    "1h": 3600.0,
    "6h": 21_600.0,
    "1d": 86_400.0,
    "7d": 604_800.0,
}
#: Rounds that a window has at least unless the URL says otherwise.
_ROUNDS: Final = 10
#: What the rows of the time line are.
GROUPS: Final = ("node", "type", "project")
#: Windows that the scrubber goes back.
_WINDOWS: Final = 24
#: Part of a window that is kept for the next round.
_AHEAD: Final = 0.125
#: Percent: shorter bars could not be seen.
_LEAST_WIDTH: Final = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What the URL of the view asks for.

    Attributes:
        group: what the rows are, of ``GROUPS``.
        span: its length, of ``SPANS``.
        now_s: the present.
        until_s: its end; None if it ends with the next round.
        notes: parts of the URL that were left out, and why.
        name: only rows with this in their names.
        after: only nodes after this one, by name.
    """

    group: str
    span: str
    now_s: float
    until_s: float | None
    notes: tuple[str, ...]
    name: str = ""
    after: str = ""

    @property
    def is_live(self) -> bool:
        """Whether it ends with the next round."""
        return self.until_s is None

    @property
    def end_s(self) -> float:
        """Its end."""
        return self.now_s + _AHEAD * SPANS[self.span] if self.until_s is None else self.until_s

    @property
    def begin_s(self) -> float:
        """Its start."""
        return max(self.end_s - SPANS[self.span], 0.0)

    def place(self, at_s: float) -> float:
        """Return where a moment is, in percent from the left; moments outside at the edge."""
        part = (at_s - self.begin_s) / (self.end_s - self.begin_s)
        return round(100 * min(max(part, 0.0), 1.0), 2)

    def url(self, **changes: str) -> str:
        """Return the relative URL of the view with some parts changed."""
        parts = {"by": self.group, "span": self.span, "q": self.name, "after": self.after}
        if self.until_s is not None:
            parts["until"] = f"{self.until_s:.0f}"
        return write_query(parts | changes)

    @property
    def earlier(self) -> str:
        """The URL of the window half a length before."""
        return self.url(until=f"{max(self.end_s - SPANS[self.span] / 2, 0.0):.0f}")

    @property
    def later(self) -> str | None:
        """The URL of the window half a length after; None if it ends with the next round."""
        if self.until_s is None:
            return None
        until_s = self.until_s + SPANS[self.span] / 2
        return self.url(until=f"{until_s:.0f}" if until_s < self.now_s else "")

    @property
    def first_s(self) -> int:
        """The earliest end of a window that the scrubber reaches, in whole steps from the last."""
        back_s = max(_WINDOWS * SPANS[self.span], self.now_s - self.end_s)
        return self.last_s - self.step_s * math.ceil(min(back_s, self.now_s) / self.step_s)

    @property
    def last_s(self) -> int:
        """The latest end of a window that the scrubber reaches: the present."""
        return math.ceil(self.now_s)

    @property
    def step_s(self) -> int:
        """The step of the scrubber."""
        return round(SPANS[self.span] / 12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Workers that a job holds, held, or will hold.

    Attributes:
        job_id: the job.
        workers: how many they are.
        worker_type: their type; empty if they are of several types.
        nodes: their nodes.
        begin_s: from when on.
        end_s: until when; until now if the lease is in force.
        kind: ``ended``, ``running`` or ``planned``.
        project: the job's project; empty if it is not needed.
        end_reason: why it ended; empty before.
    """

    job_id: str
    workers: int
    worker_type: str
    nodes: tuple[str, ...]
    begin_s: float
    end_s: float
    kind: str
    project: str = ""
    end_reason: str = ""

    def groups(self, group: str) -> tuple[str, ...]:
        """Return the rows in which it is."""
        if group == "node":
            return self.nodes
        return (self.project if group == "project" else self.worker_type or "several types",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A holding in its row: place and width in percent, and its lane, since holdings overlap."""

    holding: Holding
    x: float
    width: float
    lane: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the time line."""

    name: str
    bars: tuple[Bar, ...]
    lanes: int


def read_window(query: QueryParams, now_s: float, round_s: float = 360.0) -> Window:
    """Return what a URL asks for; what cannot be read is left out, and noted.

    Args:
        query: of the URL.
        now_s: the time.
        round_s: length of a round.
    """
    notes = []
    given = {name: query.get(name, "") for name in ("by", "span", "until")}
    if given["until"] and given["until"] == query.get("at"):  # the slider at its right end
        given["until"] = ""
    for name, words in (("by", GROUPS), ("span", tuple(SPANS))):
        if given[name] and given[name] not in words:
            notes.append(f"{name} '{given[name][:60]}': must be one of {', '.join(words)}")
            given[name] = ""
    until, until_s = given["until"], None
    if until:
        is_number = until.isascii() and until.isdigit() and len(until) <= 12
        if is_number and int(until) <= LATEST_S:
            until_s = float(until) if float(until) < now_s else None
        else:
            notes.append(f"until '{until[:60]}': must be seconds since 1970")
    fitting = (name for name, span_s in SPANS.items() if span_s >= _ROUNDS * round_s)
    span = given["span"] or next(fitting, "7d")
    if until_s is not None:
        until_s = max(until_s, 1.0)
    return Window(
        group=given["by"] or "node",
        span=span,
        now_s=now_s,
        until_s=until_s,
        notes=tuple(notes),
        name=query.get("q", "").strip()[:253],
        after=query.get("after", "")[:253],
    )


def rows_of(
    holdings: Iterable[Holding], window: Window, names: Sequence[str] | None = None
) -> tuple[list[Row], bool]:
    """Return the rows of a time line by name, and whether some were left out.

    A gang has a bar for each of its nodes, so that bars are counted.

    Args:
        holdings: the most important first.
        window: of the time line.
        names: exactly these rows, which may be empty; None for those that have a holding.
    """
    found: dict[str, list[Holding]] = {name: [] for name in names or ()}
    bars, is_cut = 0, False
    for one in holdings:
        mine = [name for name in one.groups(window.group) if names is None or name in found]
        if window.name and names is None:
            mine = [name for name in mine if window.name in name]
        is_cut = bars + len(mine) > MOST_BARS
        if is_cut:
            break
        bars += len(mine)
        for name in mine:
            found.setdefault(name, []).append(one)
    return [_row(name, found[name], window) for name in sorted(found)], is_cut


def _row(name: str, holdings: Sequence[Holding], window: Window) -> Row:
    ends: list[float] = []
    bars: list[Bar] = []
    for held in sorted(holdings, key=lambda one: (one.begin_s, one.end_s, one.job_id)):
        lane = next((i for i, end_s in enumerate(ends) if end_s <= held.begin_s), len(ends))
        if lane == len(ends):
            ends.append(held.end_s)
        ends[lane] = held.end_s
        x = window.place(held.begin_s)
        width = round(max(window.place(held.end_s) - x, _LEAST_WIDTH), 2)
        bars.append(Bar(holding=held, x=x, width=width, lane=lane))
    return Row(name=name, bars=tuple(bars), lanes=max(len(ends), 1))


async def show_rounds(request: Request, principal: Principal) -> Response:
    """Show the leases of a window, and of the next round."""
    context = context_of(request)
    cluster = context.service.cluster()
    window = read_window(request.query_params, context.now(), cluster.round_length_s)
    # Past leases may be of nodes that have gone.
    by_page = window.group == "node" and window.is_live
    nodes, more_nodes = _nodes(context, window) if by_page else ((), False)
    found: dict[str, Any] = {"attempts": [], "next_before": None}
    if nodes or not by_page:
        query = AttemptQuery(
            since_s=window.begin_s, until_s=window.end_s, nodes=nodes, limit=MOST_LEASES
        )
        found = await attempts_page(context, principal, query)
    plan = context.service.plan() if window.is_live else None
    planned = [] if plan is None else list(_planned(plan, principal, window))
    if by_page:
        planned = [one for one in planned if not set(nodes).isdisjoint(one.nodes)]
    attempts = found["attempts"]
    projects: dict[str, str] = {}
    if window.group == "project":
        jobs = {one["job_id"] for one in attempts}
        projects = await in_thread(projects_of, context, jobs)
    holdings = [*planned, *_held(attempts, projects, window)]
    rows, is_cut = rows_of(holdings, window, nodes if by_page else None)
    return render(
        request,
        "rounds.html",
        view="Rounds",
        window=window,
        groups=GROUPS,
        spans=tuple(SPANS),
        rows=rows,
        is_cut=is_cut or found["next_before"] is not None,
        of_nodes=by_page and bool(more_nodes or window.name or window.after),
        next=window.url(after=nodes[-1]) if more_nodes else None,
        first=window.url(after="") if window.after else None,
        lines=list(_lines(cluster, window)) if window.is_live else [],
        attempts=attempts[:ROWS],
        count=len(attempts),
        plan=plan,
        planned=planned[:ROWS],
        planned_count=len(planned),
        curl=as_curl(
            "attempts",
            {
                "since_s": f"{window.begin_s:.0f}",
                "until_s": f"{window.end_s:.0f}",
                "node": nodes if more_nodes or window.name or window.after else (),
            },
        ),
    )


def _nodes(context: Context, window: Window) -> tuple[tuple[str, ...], bool]:
    """Return the nodes of a page, and whether more follow."""
    names = (node.name for node in context.service.nodes())
    found = [name for name in names if window.name in name and name > window.after]
    return tuple(found[:NODES]), len(found) > NODES


def _held(
    attempts: Iterable[Mapping[str, Any]], projects: Mapping[str, str], window: Window
) -> Iterator[Holding]:
    for one in attempts:
        ended_s = one["ended_s"]
        yield Holding(
            job_id=one["job_id"],
            workers=len(one["workers"]),
            worker_type=one["worker_type"],
            nodes=tuple(dict.fromkeys(one["nodes"])),
            begin_s=one["start_s"],
            end_s=window.now_s if ended_s is None else ended_s,
            kind="running" if ended_s is None else "ended",
            project=projects.get(one["job_id"], ""),
            end_reason=one["end_reason"] or "",
        )


def _planned(plan: PlanView, principal: Principal, window: Window) -> Iterator[Holding]:
    for one in plan.leases:
        if principal.sees(one.project) and one.ends_s > window.now_s:
            yield Holding(
                job_id=one.job_id,
                workers=len(one.workers),
                worker_type=one.worker_type,
                nodes=tuple(dict.fromkeys(one.nodes)),
                begin_s=max(one.begins_s, window.now_s),
                end_s=one.ends_s,
                kind="planned",
                project=one.project,
            )


def _lines(cluster: ClusterView, window: Window) -> Iterator[float]:
    """Yield where rounds end, in percent; nothing if the lines would be too dense."""
    end_s, length_s = cluster.round_ends_s, cluster.round_length_s
    if end_s is None or length_s * MOST_LINES < SPANS[window.span]:
        return
    end_s += length_s * math.floor((window.end_s - end_s) / length_s)
    while end_s > window.begin_s:
        yield window.place(end_s)
        end_s -= length_s


ROUTES: Final = (page("/rounds", show_rounds),)
