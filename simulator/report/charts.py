"""The figures of a report, as plain plotly.js specifications.

Plain dictionaries, not plotly's Python objects: building thousands of bars through those takes
seconds, and the page sets its own colours for light and dark. Every figure has the same bytes for
the same results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.domain.arrays import FloatArray
    from simulator.result import JobOutcome, SimulationResult

#: Okabe and Ito's colours without yellow and black, which vanish on white or on dark paper.
POLICY_COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
#: More policies than colours differ by the dash.
_DASHES: Final = ("solid", "dash", "dot", "dashdot")
#: Tol's muted colours, for worker types and job types, so that they differ from policies.
KIND_COLOURS: Final = (
    "#88CCEE",
    "#CC6677",
    "#DDCC77",
    "#44AA99",
    "#AA4499",
    "#999933",
    "#6699CC",
    "#882255",
    "#BBBBBB",
)
#: Most points of a line: a screen cannot show more.
_LINE_POINTS: Final = 400
#: Job types with a colour of their own; the others are summed.
_JOB_TYPES_SHOWN: Final = 8

_Figure = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeUnit:
    """The unit in which a page shows times.

    Attributes:
        name: as shown in an axis title.
        seconds: its length.
    """

    name: str
    seconds: float

    @classmethod
    def for_span(cls, seconds: float) -> TimeUnit:
        """Choose the unit that makes a span of that length readable."""
        if seconds > 21 * 86400:
            return cls(name="days", seconds=86400)
        return (
            cls(name="hours", seconds=3600) if seconds > 7200 else cls(name="minutes", seconds=60)
        )


def time_units(results: Sequence[SimulationResult]) -> tuple[TimeUnit, TimeUnit]:
    """Return the unit of time axes, and that of job completion times.

    Completion times are never in days: the table uses hours, and a logarithmic axis has room.
    """
    longest_jct_s = max((job.jct_s or 0.0 for r in results for job in r.jobs), default=0.0)
    unit = TimeUnit.for_span(max(r.summary.makespan_s for r in results))
    return unit, TimeUnit.for_span(min(longest_jct_s, 86400.0))


def policy_line(index: int) -> dict[str, Any]:
    """Return the line style of the policy at that position; the same in every figure."""
    return {
        "color": POLICY_COLOURS[index % len(POLICY_COLOURS)],
        "dash": _DASHES[index // len(POLICY_COLOURS) % len(_DASHES)],
        "width": 2,
    }


def jct_distribution(results: Sequence[SimulationResult], unit: TimeUnit) -> _Figure:
    """Return the share of measured jobs that were complete within a time, per policy."""
    samples = [
        np.array([jct / unit.seconds for job in _measured(r) if (jct := job.jct_s) is not None])
        for r in results
    ]
    layout = {
        "xaxis": {"title": {"text": f"job completion time ({unit.name})"}, "type": "log"},
        "yaxis": _percent_axis("jobs complete"),
    }
    return {"data": _distributions(results, samples), "layout": layout}


def rho_distribution(results: Sequence[SimulationResult]) -> _Figure:
    """Return the share of measured jobs with a rho of at most x, per policy, with a line at 1."""
    samples = [
        np.array([job.rho for job in _measured(r) if job.rho is not None], dtype=float)
        for r in results
    ]
    layout = {
        "xaxis": {"title": {"text": "rho (1 = as fast as on an isolated share)"}, "type": "log"},
        "yaxis": _percent_axis("jobs"),
        "shapes": [
            {"type": "line", "xref": "x", "yref": "paper", "x0": 1, "x1": 1, "y0": 0, "y1": 1,
             "line": {"color": "#888888", "width": 1, "dash": "dot"}}
        ],
    }  # fmt: skip
    return {"data": _distributions(results, samples), "layout": layout}


def utilisation(results: Sequence[SimulationResult], unit: TimeUnit) -> _Figure:
    """Return the share of workers under a lease over time, per policy."""
    lines = []
    for index, result in enumerate(results):
        series = result.series
        busy = series.busy.sum(axis=1) / max(1, sum(result.capacity))
        time_s, value = _averaged(series.time_s, busy[:, None], run_end_s(result))
        lines.append(_line(index, result, time_s / unit.seconds, value[:, 0]))
    layout = {"xaxis": _time_axis(unit), "yaxis": _percent_axis("workers busy")}
    return {"data": lines, "layout": layout}


def queue_length(results: Sequence[SimulationResult], unit: TimeUnit) -> _Figure:
    """Return the number of waiting jobs over time, per policy."""
    lines = []
    for index, result in enumerate(results):
        waiting = result.series.waiting.astype(float)[:, None]
        time_s, value = _averaged(result.series.time_s, waiting, run_end_s(result))
        lines.append(_line(index, result, time_s / unit.seconds, value[:, 0]))
    axis = {"title": {"text": "jobs waiting"}, "rangemode": "tozero"}
    return {"data": lines, "layout": {"xaxis": _time_axis(unit), "yaxis": axis}}


def allocation_by_worker_type(result: SimulationResult, unit: TimeUnit) -> _Figure:
    """Return X over time: workers that the policy wants in use, stacked by worker type."""
    return _stacked(result, unit, result.worker_types, result.allocations.share)


def allocation_by_job_type(result: SimulationResult, unit: TimeUnit) -> _Figure:
    """Return X over time, stacked by job type; small ones are summed as "others"."""
    x = result.allocations
    names, share = list(x.by_job_type), x.share_by_job_type
    if len(names) > _JOB_TYPES_SHOWN:
        order = np.argsort(-share.sum(axis=0), kind="stable")
        top, rest = order[: _JOB_TYPES_SHOWN - 1], order[_JOB_TYPES_SHOWN - 1 :]
        names = [names[i] for i in top.tolist()] + [f"{len(rest)} others"]
        share = np.column_stack([share[:, top], share[:, rest].sum(axis=1)])
    return _stacked(result, unit, names, share)


def round_values(values: FloatArray) -> list[float | None]:
    """Return the values with six digits, which is more than a screen shows; None if not finite."""
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in values.tolist()]


def _measured(result: SimulationResult) -> list[JobOutcome]:
    return [job for job in result.jobs if job.measured]


def run_end_s(result: SimulationResult) -> float:
    """Return the end of a run in s, also of one that kept no series."""
    last = float(result.series.time_s[-1]) if len(result.series.time_s) else 0.0
    makespan_s = result.summary.makespan_s
    return max(last, makespan_s) if np.isfinite(makespan_s) else last


def _distributions(
    results: Sequence[SimulationResult], samples: Sequence[FloatArray]
) -> list[_Figure]:
    lines = []
    for index, (result, sample) in enumerate(zip(results, samples, strict=True)):
        ordered = np.sort(sample)
        # The denominator counts jobs that never completed: a policy cannot look good by failing.
        share = np.arange(1, len(ordered) + 1) / max(1, len(_measured(result)))
        if len(ordered) > _LINE_POINTS:
            keep = np.unique(np.linspace(0, len(ordered) - 1, _LINE_POINTS).round().astype(int))
            ordered, share = ordered[keep], share[keep]
        # A first point at 0 %; otherwise a distribution that starts with a jump hangs in the air.
        lines.append(
            _line(
                index,
                result,
                np.append(ordered[:1], ordered),
                np.append(0.0, share)[: len(ordered) + 1],
            )
        )
    return lines


def _line(index: int, result: SimulationResult, x: FloatArray, y: FloatArray) -> _Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": result.summary.policy,
        "x": round_values(x),
        "y": round_values(y),
        "line": {**policy_line(index), "shape": "hv"},
    }


def _stacked(
    result: SimulationResult, unit: TimeUnit, names: Sequence[str], values: FloatArray
) -> _Figure:
    time_s, mean = _averaged(result.allocations.time_s, values, run_end_s(result))
    areas = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": round_values(time_s / unit.seconds),
            "y": round_values(mean[:, i]),
            "stackgroup": "x",
            "line": {"width": 0.5, "shape": "hv", "color": KIND_COLOURS[i % len(KIND_COLOURS)]},
            "fillcolor": KIND_COLOURS[i % len(KIND_COLOURS)],
        }
        for i, name in enumerate(names)
    ]
    capacity = sum(result.capacity)
    # Two jobs on one worker may count twice by job type; the stack must not be cut off.
    top = max(capacity, float(mean.sum(axis=1).max(initial=0.0))) * 1.02
    axis = {"title": {"text": f"workers that X uses (of {capacity})"}, "range": [0, top]}
    return {"data": areas, "layout": {"xaxis": _time_axis(unit), "yaxis": axis}}


def _time_axis(unit: TimeUnit) -> dict[str, Any]:
    return {"title": {"text": f"time ({unit.name})"}, "rangemode": "tozero"}


def _percent_axis(title: str) -> dict[str, Any]:
    return {"title": {"text": title}, "range": [0, 1.02], "tickformat": ".0%"}


def _averaged(
    time_s: FloatArray, values: FloatArray, end_s: float, *, points: int = _LINE_POINTS
) -> tuple[FloatArray, FloatArray]:
    """Average step functions over at most ``points`` equal intervals.

    Args:
        time_s: (S,) ascending; each value holds until the next time.
        values: (S, D).
        end_s: end of the last value.
        points: number of intervals; shorter series are returned as they are.

    Returns:
        (P,) starts of the intervals and the final end, and (P, D) means; the last row repeats.
    """
    if len(time_s) == 0 or end_s <= time_s[0]:
        return time_s, values
    if len(time_s) < points:
        return np.append(time_s, end_s), np.vstack([values, values[-1:]])
    edges = np.linspace(time_s[0], end_s, points + 1)
    knots = np.append(time_s, end_s)
    area = np.vstack([np.zeros((1, values.shape[1])), np.diff(knots)[:, None] * values])
    total = area.cumsum(axis=0)
    at_edges = np.column_stack([np.interp(edges, knots, column) for column in total.T])
    mean = np.diff(at_edges, axis=0) / np.diff(edges)[:, None]
    return edges, np.vstack([mean, mean[-1:]])
