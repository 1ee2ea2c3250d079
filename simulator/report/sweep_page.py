"""The HTML page about a sweep: figures against the load, with their spread over the seeds."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

from simulator.many.sweep import curves_by_policy
from simulator.report.charts import policy_line
from simulator.report.html_table import render_cell, render_heading, render_row, render_table
from simulator.report.page import fill_page
from simulator.staging import staged_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from simulator.many.sweep import CellResult, Point

#: (figure of the page, key of the summary, axis title, factor)
_FIGURES: Final = (
    ("average", "average_jct_s", "average JCT (hours)", 1 / 3600),
    ("p95", "p95_jct_s", "p95 JCT (hours)", 1 / 3600),
    ("rho", "rho_max", "worst rho", 1.0),
    ("utilisation", "utilisation", "utilisation", 1.0),
)


def write_sweep_report(results: Sequence[CellResult], path: Path, *, subtitle: str) -> None:
    """Write the page, whole or not at all.

    Args:
        results: finished cells, in the order in which policies should appear.
        path: the file; an existing one is replaced.
        subtitle: what was swept, as text.
    """
    page = fill_page(
        "sweep.html",
        {
            "title": "Leasehold sweep",
            "subtitle": html.escape(subtitle),
            "table": _table(curves_by_policy(results, "average_jct_s")),
        },
        {
            "figures": {
                name: _figure(results, key, title, factor) for name, key, title, factor in _FIGURES
            }
        },
    )
    with staged_file(path) as file:
        file.write(page)


def _figure(results: Sequence[CellResult], key: str, title: str, factor: float) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    for index, (policy, points) in enumerate(curves_by_policy(results, key).items()):
        traces += _curve(index, policy, points, factor)
    layout = {
        "xaxis": {"title": {"text": "arrival rate (jobs per hour)"}},
        "yaxis": {"title": {"text": title}, "rangemode": "tozero"},
    }
    return {"data": traces, "layout": layout}


def _curve(index: int, policy: str, points: Sequence[Point], factor: float) -> list[dict[str, Any]]:
    """Return the mean as a line, and the range over the seeds as a band that belongs to it."""
    rates = [p.rate_per_hour for p in points]
    style = policy_line(index)
    band = {
        "type": "scatter",
        "mode": "lines",
        "x": rates + rates[::-1],
        "y": [p.high * factor for p in points] + [p.low * factor for p in points][::-1],
        "fill": "toself",
        "fillcolor": _transparent(style["color"]),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "legendgroup": policy,
        "showlegend": False,
    }
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": policy,
        "x": rates,
        "y": [p.mean * factor for p in points],
        "line": style,
        "marker": {"size": 6},
        "legendgroup": policy,
    }
    return [band, line]


def _transparent(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def _table(by_policy: dict[str, list[Point]]) -> str:
    rates = sorted({p.rate_per_hour for points in by_policy.values() for p in points})
    best = {
        rate: min(
            p.mean for points in by_policy.values() for p in points if p.rate_per_hour == rate
        )
        for rate in rates
    }
    rows = []
    for index, (policy, points) in enumerate(by_policy.items()):
        at = {p.rate_per_hour: p for p in points}
        cells = (_cell(at.get(rate), best[rate]) for rate in rates)
        rows.append(render_row(policy, cells, colour=policy_line(index)["color"]))
    headings = (render_heading(f"{rate:g}", unit="jobs/h") for rate in rates)
    return render_table("policy", headings, rows)


def _cell(point: Point | None, best: float) -> str:
    if point is None:
        return render_cell("-")
    spread = f"{point.low / 3600:,.2f} to {point.high / 3600:,.2f}, {point.seeds} seeds"
    return render_cell(f"{point.mean / 3600:,.2f}", best=point.mean == best, tooltip=spread)
