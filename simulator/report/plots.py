"""Plots of one run or several: the figures of the HTML report, one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scheduler.errors import ParameterError
from simulator.report import charts
from simulator.report.drawing import draw_svg
from simulator.staging import staged_file

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from simulator.result import SimulationResult

#: Kinds of ``plot`` for one run or several.
KINDS: Final = ("jct", "rho", "utilisation", "queue")
#: Kinds of ``plot`` for one run only.
KINDS_OF_ONE: Final = ("allocation", "allocation_by_job_type")
#: Kinds that need no series.
_OF_JOBS: Final = ("jct", "rho")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Plot:
    """A figure. A notebook shows it as SVG.

    Attributes:
        kind: its kind, such as ``"jct"``.
        figure: ``data`` and ``layout``, as plotly.js takes them.
        width: in pixels.
        height: in pixels.
    """

    kind: str
    figure: Mapping[str, Any]
    width: int = 720
    height: int = 360

    @property
    def svg(self) -> str:
        """The figure as an SVG document; the same results give the same bytes."""
        return draw_svg(self.figure, width=self.width, height=self.height)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the SVG, whole or not at all.

        Raises:
            InputError: the file cannot be written.
        """
        from pathlib import Path  # noqa: PLC0415 - only for writing

        with staged_file(Path(path)) as file:
            file.write(self.svg)

    def to_plotly(self) -> Any:
        """Return a ``plotly.graph_objects.Figure``: interactive, and open to changes."""
        from plotly.graph_objects import Figure  # noqa: PLC0415 - takes a second to load

        return Figure({**self.figure})

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        lines = ", ".join(line["name"] for line in self.figure["data"])
        return f"Plot {self.kind} of {lines}"


def plot(
    results: Sequence[SimulationResult], kind: str, *, width: int = 720, height: int = 360
) -> Plot:
    """Make a plot.

    Args:
        results: at least one.
        kind: one of ``KINDS``, or of ``KINDS_OF_ONE`` if there is one result.
        width: in pixels.
        height: in pixels.

    Raises:
        ParameterError: the kind is unknown, needs a single run, or needs series that were not kept.
    """
    if kind not in (*KINDS, *KINDS_OF_ONE):
        known = ", ".join((*KINDS, *KINDS_OF_ONE))
        raise ParameterError(f"plot kind is '{kind}'; known are {known}")
    if kind in KINDS_OF_ONE and len(results) > 1:
        raise ParameterError(f"plot '{kind}' is of one run; take it of one of the results")
    if kind not in _OF_JOBS and not all(len(result.series.time_s) for result in results):
        raise ParameterError(f"plot '{kind}' needs the series over time; run with record=True")
    return Plot(kind=kind, figure=_figure(results, kind), width=width, height=height)


def _figure(results: Sequence[SimulationResult], kind: str) -> dict[str, Any]:
    unit, jct_unit = charts.time_units(results)
    if kind == "jct":
        return charts.jct_distribution(results, jct_unit)
    if kind == "rho":
        return charts.rho_distribution(results)
    if kind == "utilisation":
        return charts.utilisation(results, unit)
    if kind == "queue":
        return charts.queue_length(results, unit)
    if kind == "allocation":
        return charts.allocation_by_worker_type(results[0], unit)
    return charts.allocation_by_job_type(results[0], unit)
