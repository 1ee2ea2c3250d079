"""The HTML page about savings: a table, two figures and the assumptions."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

from simulator.report.charts import policy_line
from simulator.report.html_table import render_cell, render_heading, render_row, render_table
from simulator.report.page import fill_page
from simulator.tables.columns import format_amount, format_hours

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from simulator.many.savings import PolicyFigures, SavedAmount

#: Heading of a column -> its meaning, in the order of ``format_figures``.
COLUMNS: Final = {
    "GPU-hours": "GPU-hours that the jobs held until they completed.",
    "GPU-hours saved": "GPU-hours less than in the queue.",
    "USD": "Price of the GPU-hours.",
    "USD saved": "USD less than in the queue.",
    "mean JCT (h)": "Mean time from submission to completion.",
    "JCT reduction": "By how much the mean JCT is shorter than in the queue.",
    "p95 JCT (h)": "19 of 20 jobs took no longer.",
    "preemptions": "Leases that ended before their job did.",
}


def render_savings_page(
    figures: Sequence[PolicyFigures],
    *,
    subtitle: str,
    assumptions: Sequence[str],
    confidence: float,
) -> str:
    """Return the page as text.

    Args:
        figures: of the queue first, then of the policies.
        subtitle: which jobs were replayed on which cluster.
        assumptions: sentences.
        confidence: of the intervals.
    """
    saved = {one.policy: one.saved for one in figures if one.saved is not None}
    return fill_page(
        "savings.html",
        {
            "title": "Savings over a plain queue",
            "subtitle": html.escape(subtitle),
            "table": _table(figures),
            "intervals": html.escape(describe_intervals(figures, confidence)),
            "assumptions": "".join(f"<li>{html.escape(text)}</li>" for text in assumptions),
        },
        {
            "figures": {
                "gpu_hours": _bars(
                    {label: one.gpu_hours for label, one in saved.items()}, {"title": "GPU-hours"}
                ),
                "jct": _bars(
                    {label: one.mean_jct for label, one in saved.items()},
                    {"title": "reduction of the mean JCT", "tickformat": ".0%"},
                ),
            }
        },
    )


def describe_intervals(figures: Sequence[PolicyFigures], confidence: float) -> str:
    """Return a sentence about the intervals, or why there are none."""
    if all(one.saved is None or one.saved.gpu_hours.low is None for one in figures):
        what = "The trace is too short for intervals. The figures"
    else:
        what = (
            f"The {confidence:.0%} intervals, in brackets, come from resampling the days of the "
            "trace, or 20 equal parts of a shorter one. They"
        )
    return f"{what} do not cover errors of the throughputs."


def format_figures(one: PolicyFigures) -> tuple[str, ...]:
    """Return the cells of a policy, in the order of ``COLUMNS``."""
    saved = one.saved
    return (
        format_amount(one.gpu_hours),
        _saved(saved.gpu_hours) if saved else "",
        format_amount(one.usd),
        _saved(saved.usd) if saved else "",
        format_hours(one.mean_jct_s),
        _saved(saved.mean_jct, "{:.0%}".format) if saved else "",
        format_hours(one.p95_jct_s),
        f"{one.preemptions:,.0f}",
    )


def _saved(saved: SavedAmount, show: Callable[[float], str] = format_amount) -> str:
    if saved.low is None or saved.high is None:
        return show(saved.value)
    return f"{show(saved.value)} ({show(saved.low)} to {show(saved.high)})"


def _table(figures: Sequence[PolicyFigures]) -> str:
    headings = (render_heading(title, meaning=meaning) for title, meaning in COLUMNS.items())
    rows = (
        render_row(
            one.policy,
            map(render_cell, format_figures(one)),
            colour=policy_line(i - 1)["color"] if i else "",
        )
        for i, one in enumerate(figures)
    )
    return render_table("", headings, rows)


def _bars(saved: Mapping[str, SavedAmount], axis: Mapping[str, str]) -> dict[str, Any]:
    """Return a bar with its interval for each policy."""
    bars: dict[str, Any] = {
        "type": "bar",
        "x": list(saved),
        "y": [one.value for one in saved.values()],
        "marker": {"color": [policy_line(i)["color"] for i in range(len(saved))]},
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [0.0 if x.high is None else x.high - x.value for x in saved.values()],
            "arrayminus": [0.0 if x.low is None else x.value - x.low for x in saved.values()],
        },
    }
    layout = {"yaxis": {**axis, "title": {"text": axis["title"]}}, "showlegend": False}
    return {"data": [bars], "layout": layout}
