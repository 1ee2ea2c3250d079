"""The columns in which summaries are compared: titles, units, and the better direction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simulator.result import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureColumn:
    """One figure of a summary, ready to be shown.

    Attributes:
        key: attribute of ``Summary``.
        title: short heading.
        unit: of the shown text, or empty.
        better: "low", "high", or empty if neither is better.
        meaning: one sentence.
        show: from the figure to text.
    """

    key: str
    title: str
    unit: str
    better: str
    meaning: str
    show: Callable[[float], str]

    def text(self, summary: Summary) -> str:
        """Return the figure as text; a dash if it is unknown."""
        value = float(getattr(summary, self.key))
        return self.show(value) if math.isfinite(value) else "-"

    def best(self, summaries: Sequence[Summary]) -> frozenset[int]:
        """Return the positions of the best figures; empty if all are equal or there is only one."""
        if not self.better or len(summaries) < 2:
            return frozenset()
        texts = [self.text(s) for s in summaries]
        values = [float(getattr(s, self.key)) for s in summaries]
        known = [v for v in values if math.isfinite(v)]
        if not known or len(set(texts)) == 1:
            return frozenset()
        target = min(known) if self.better == "low" else max(known)
        # By text: figures that look the same must be marked the same.
        winner = texts[values.index(target)]
        return frozenset(i for i, text in enumerate(texts) if text == winner)


def format_hours(seconds: float) -> str:
    """Return hours, with three digits or more, so that minutes and months both compare."""
    hours = seconds / 3600
    return f"{hours:,.2f}" if hours >= 1 else f"{hours:.3f}"


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _ratio(value: float) -> str:
    return f"{value:,.2f}"


def format_amount(value: float) -> str:
    """Return an amount with two decimals, or as a whole number from 1,000 on."""
    return f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.1f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.1f}"


#: Figures that depend on the inputs and the seed only.
COLUMNS: Final = (
    FigureColumn(
        key="jobs_completed",
        title="jobs done",
        unit="",
        better="",
        meaning="Jobs of the window that completed.",
        show=_count,
    ),
    FigureColumn(
        key="average_jct_s",
        title="average JCT",
        unit="h",
        better="low",
        meaning="Mean time from a job's arrival to its last step.",
        show=format_hours,
    ),
    FigureColumn(
        key="p50_jct_s",
        title="median JCT",
        unit="h",
        better="low",
        meaning="Half of the jobs took no longer.",
        show=format_hours,
    ),
    FigureColumn(
        key="p95_jct_s",
        title="p95 JCT",
        unit="h",
        better="low",
        meaning="19 of 20 jobs took no longer.",
        show=format_hours,
    ),
    FigureColumn(
        key="makespan_s",
        title="makespan",
        unit="h",
        better="low",
        meaning="The end of the run.",
        show=format_hours,
    ),
    FigureColumn(
        key="utilisation",
        title="utilisation",
        unit="",
        better="high",
        meaning="Worker-seconds under a lease over all worker-seconds.",
        show=_percent,
    ),
    FigureColumn(
        key="rho_mean",
        title="mean rho",
        unit="",
        better="low",
        meaning="JCT over the JCT on a 1/n share of the cluster; below 1 is better than alone.",
        show=_ratio,
    ),
    FigureColumn(
        key="rho_max",
        title="worst rho",
        unit="",
        better="low",
        meaning="The rho of the job that was treated worst.",
        show=_ratio,
    ),
    FigureColumn(
        key="cost_usd",
        title="cost",
        unit="USD",
        better="low",
        meaning="Price of the worker-seconds held.",
        show=format_amount,
    ),
    FigureColumn(
        key="slo_violations",
        title="SLOs missed",
        unit="",
        better="low",
        meaning="Jobs that were not complete by their deadline.",
        show=_count,
    ),
    FigureColumn(
        key="preemptions",
        title="preemptions",
        unit="",
        better="low",
        meaning="Leases that ended before their job did.",
        show=_count,
    ),
    FigureColumn(
        key="launching",
        title="launching",
        unit="",
        better="low",
        meaning="Share of the time under leases that launches and restores took.",
        show=_percent,
    ),
    FigureColumn(
        key="lease_extension_rate",
        title="leases extended",
        unit="",
        better="high",
        meaning="Share of leases that continued into the next round.",
        show=_percent,
    ),
    FigureColumn(
        key="rounds",
        title="rounds",
        unit="",
        better="",
        meaning="Rounds planned.",
        show=_count,
    ),
)

#: Figures that differ from run to run; for the terminal only.
TIMING_COLUMNS: Final = (
    FigureColumn(
        key="solve_median_s",
        title="solve p50",
        unit="ms",
        better="low",
        meaning="Median time of computing an allocation.",
        show=_milliseconds,
    ),
    FigureColumn(
        key="cpu_s",
        title="CPU",
        unit="s",
        better="low",
        meaning="CPU seconds of the run.",
        show=_seconds,
    ),
)
