"""The HTML page about clusters of other sizes: their JCT against their cost."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any, Final

from simulator.many.cluster_search import find_changes, find_frontier
from simulator.report.charts import policy_line
from simulator.report.html_table import render_cell, render_heading, render_row, render_table
from simulator.report.page import fill_page
from simulator.tables.columns import format_amount, format_hours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.many.cluster_search import ClusterSpace, Goal, ReplayedCluster

#: Heading of a column -> its meaning, in the order of ``format_cluster``.
COLUMNS: Final = {
    "change": "Workers added to the present cluster, or dropped.",
    "USD per hour": "Price of all workers of the cluster.",
    "mean JCT (h)": "Mean time from submission to completion.",
    "p95 JCT (h)": "19 of 20 jobs took no longer.",
    "utilisation": "Worker-seconds under a lease over all worker-seconds.",
    "unfinished": "Jobs that did not complete.",
}


def render_advice_page(
    found: Sequence[ReplayedCluster],
    space: ClusterSpace,
    goal: Goal,
    *,
    headline: str,
    subtitle: str,
) -> str:
    """Return the page as text.

    Args:
        found: the replayed clusters, the present one first.
        space: of the search.
        goal: of the search.
        headline: the result in one sentence.
        subtitle: which jobs were replayed, and the present cluster.
    """
    frontier = find_frontier(found, goal.metric)
    advice = [c for c in frontier if goal.is_met(c) and c == goal.find_best(found)]
    rows = (
        render_row(
            space.spec(cluster.counts),
            [
                render_cell(text, best=cluster in advice)
                for text in format_cluster(found[0], cluster, space)
            ],
        )
        for cluster in choose_rows(found, goal)
    )
    headings = (render_heading(title, meaning=meaning) for title, meaning in COLUMNS.items())
    comparable = [c for c in found if c.unfinished == frontier[0].unfinished]
    groups = (
        _points("replayed", comparable, found[0], space, goal, size=6, colour=2),
        _points("frontier", frontier, found[0], space, goal, size=7, colour=0, line=True),
        _points("present cluster", comparable[:1], found[0], space, goal, size=13, colour=1)
        if comparable[0] == found[0]
        else {},
        _points("advice", advice, found[0], space, goal, size=13, colour=3),
    )
    layout = {
        "xaxis": {"title": {"text": "USD per hour"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": f"{goal.metric} JCT (hours)"}, "rangemode": "tozero"},
    }
    return fill_page(
        "advice.html",
        {
            "title": "Clusters for this load",
            "subtitle": html.escape(subtitle),
            "headline": html.escape(headline),
            "table": render_table("cluster", headings, rows),
        },
        {"figures": {"frontier": {"data": [x for x in groups if x.get("x")], "layout": layout}}},
    )


def _points(
    name: str,
    clusters: Sequence[ReplayedCluster],
    present: ReplayedCluster,
    space: ClusterSpace,
    goal: Goal,
    *,
    size: int,
    colour: int,
    line: bool = False,
) -> dict[str, Any]:
    """Return a group of points; clusters that completed no job are left out."""
    shown = [c for c in clusters if math.isfinite(c.mean_jct_s)]
    return {
        "type": "scatter",
        "name": name,
        "mode": "lines+markers" if line else "markers",
        "x": [c.usd_per_hour for c in shown],
        "y": [c.jct_s(goal.metric) / 3600 for c in shown],
        "text": [f"{space.spec(c.counts)} ({describe_changes(present, c, space)})" for c in shown],
        "marker": {"size": size, "color": policy_line(colour)["color"]},
    }


def describe_changes(
    present: ReplayedCluster, cluster: ReplayedCluster, space: ClusterSpace
) -> str:
    """Return how a cluster differs from the present one: ``+8 a100, -4 t4``."""
    changes = find_changes(present.counts, cluster.counts, space.types)
    return ", ".join(f"{count:+d} {name}" for name, count in changes.items()) or "unchanged"


def choose_rows(found: Sequence[ReplayedCluster], goal: Goal) -> list[ReplayedCluster]:
    """Return the clusters of the table: the frontier, and the present cluster first if missing."""
    frontier = find_frontier(found, goal.metric)
    return frontier if found[0] in frontier else [found[0], *frontier]


def format_cluster(
    present: ReplayedCluster, cluster: ReplayedCluster, space: ClusterSpace
) -> tuple[str, ...]:
    """Return the cells of a cluster, in the order of ``COLUMNS``."""
    return (
        describe_changes(present, cluster, space),
        format_amount(cluster.usd_per_hour),
        format_jct(cluster.mean_jct_s),
        format_jct(cluster.p95_jct_s),
        f"{cluster.utilisation:.0%}",
        f"{cluster.unfinished:,}",
    )


def format_jct(jct_s: float) -> str:
    """Return a JCT in hours, or a dash if it is unknown."""
    return format_hours(jct_s) if math.isfinite(jct_s) else "-"
