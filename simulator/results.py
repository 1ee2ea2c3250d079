"""Results for Python users: figures, tables, plots."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.errors import ParameterError
from simulator.report.files import write_result
from simulator.report.page import write_report
from simulator.report.plots import plot
from simulator.tables import tables
from simulator.tables.summaries import print_summaries, summaries_html

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from simulator.report.plots import Plot
    from simulator.result import SimulationResult, Summary
    from simulator.tables.tables import Table


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Result:
    """The result of one run. Equal inputs and seed give equal values, ``TIMINGS`` apart."""

    _run: SimulationResult

    @property
    def policy(self) -> str:
        """Name and options of the policy, as ``--policies`` takes them."""
        return self._run.summary.policy

    @property
    def summary(self) -> Summary:
        """The figures of the run, over the jobs of its window."""
        return self._run.summary

    @property
    def jobs(self) -> Table:
        """A row per job, in order of arrival; times in s. Columns as in ``jobs.csv``."""
        return tables.job_table(self._run)

    @property
    def leases(self) -> Table:
        """A row per lease, in order of start; times in s. Columns as in ``leases.csv``."""
        return tables.lease_table(self._run)

    @property
    def series(self) -> Table:
        """The cluster over time; a row holds until the next. Columns as in ``series.csv``."""
        return tables.series_table(self._run)

    @property
    def allocations(self) -> Table:
        """X over time; a row holds until the next. Columns as in ``allocations.csv``."""
        return tables.allocation_table(self._run)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Facts that readers of the figures must know, a sentence each."""
        return self._run.warnings

    def plot(self, kind: str = "jct", *, width: int = 720, height: int = 360) -> Plot:
        """Draw one figure of the report.

        Args:
            kind: ``jct`` and ``rho``, the share of jobs up to a value; ``utilisation`` and
                ``queue`` over time; ``allocation``, X over time by worker type, or
                ``allocation_by_job_type``.
            width: in pixels.
            height: in pixels.

        Raises:
            ParameterError: there is no such kind, or the run kept no series.
        """
        return plot([self._run], kind, width=width, height=height)

    def write(self, folder: str | os.PathLike[str], *, chrome_trace: bool = False) -> None:
        """Write the same files as ``leasehold simulate --out``: summary, CSV files and a report.

        Args:
            folder: new, empty, or an earlier result, which is replaced.
            chrome_trace: also write ``trace.json`` for Perfetto.

        Raises:
            InputError: the folder holds something else, or cannot be written.
        """
        write_result(self._run, Path(folder), report=True, chrome_trace=chrome_trace)

    def __str__(self) -> str:
        return _text([self.summary])

    def __repr__(self) -> str:
        summary = self.summary
        done = f"{summary.jobs_completed} of {summary.jobs} jobs completed"
        return f"Result of {self.policy}: {done}, average JCT {summary.average_jct_s:,.0f} s"

    def _repr_html_(self) -> str:
        return summaries_html([self.summary])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison:
    """Runs of several policies on one trace, by policy in the given order.

    ``runs["fifo"]`` is the result of one policy; iterating yields the names.
    """

    _results: Mapping[str, Result]
    _failed: Mapping[str, str]

    @property
    def results(self) -> tuple[Result, ...]:
        """The results of the runs that ended well."""
        return tuple(self._results.values())

    @property
    def failed(self) -> Mapping[str, str]:
        """Policy -> why its run failed; empty if no run failed."""
        return self._failed

    @property
    def summaries(self) -> Table:
        """A row of figures per run, as ``summary.csv``, timings too."""
        return tables.summary_table(self._summaries)

    def plot(self, kind: str = "jct", *, width: int = 720, height: int = 360) -> Plot:
        """Draw one figure of the report, a line per policy.

        Args:
            kind: ``jct``, ``rho``, ``utilisation`` or ``queue``; see ``Result.plot``.
            width: in pixels.
            height: in pixels.

        Raises:
            ParameterError: there is no such kind, or the runs kept no series.
        """
        return plot(self._runs, kind, width=width, height=height)

    def write_report(self, path: str | os.PathLike[str]) -> None:
        """Write the HTML report of ``leasehold compare``: one page, which works offline.

        Raises:
            InputError: the file cannot be written.
        """
        write_report(self._runs, Path(path))

    def __getitem__(self, policy: str) -> Result:
        """Return the result of one policy.

        Raises:
            ParameterError: it was not run, or its run failed.
        """
        if policy in self._failed:
            raise ParameterError(f"the run of '{policy}' failed: {self._failed[policy]}")
        if policy not in self._results:
            raise ParameterError(f"no run of '{policy}'; there are {', '.join(self._results)}")
        return self._results[policy]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __str__(self) -> str:
        return _text(self._summaries) + "".join(
            f"\nfailed: {policy}: {error}" for policy, error in self._failed.items()
        )

    def __repr__(self) -> str:
        return f"Comparison of {', '.join(self._results)}"

    def _repr_html_(self) -> str:
        return summaries_html(self._summaries)

    @property
    def _runs(self) -> list[SimulationResult]:
        return [result._run for result in self.results]  # noqa: SLF001 - our own

    @property
    def _summaries(self) -> list[Summary]:
        return [result.summary for result in self.results]


def _text(summaries: Sequence[Summary]) -> str:
    file = io.StringIO()
    print_summaries(summaries, file=file, timings=False)
    return file.getvalue().rstrip()
