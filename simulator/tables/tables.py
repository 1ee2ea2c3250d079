"""A run as tables of columns: numpy arrays, with the names of the CSV files."""

from __future__ import annotations

import html
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scheduler.errors import ParameterError
from simulator.result import JobOutcome, LeaseSpan, Summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from simulator.result import SimulationResult

#: Annotation of a field -> type of its column. Missing values are NaN.
_DTYPES: Final = {
    "str": object,
    "bool": np.bool_,
    "int": np.int64,
    "float": np.float64,
    "float | None": np.float64,
    "tuple[int, ...]": object,
}
#: Rows of a longer table that a notebook shows, from its beginning.
_ROWS_SHOWN: Final = 8


class Table:
    """Columns of equal length. ``table["jct_s"]`` is a numpy array with an entry per row.

    Numbers are int64 or float64, with NaN for unknown values; texts are objects. A table iterates
    over the names of its columns, and its length is its number of rows, as with pandas. The arrays
    are read-only.
    """

    __slots__ = ("_columns", "_rows")

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Make a table.

        Args:
            columns: (n,) each, by name.

        Raises:
            ValueError: they differ in length.
        """
        lengths = {len(values) for values in columns.values()}
        if len(lengths) > 1:
            raise ValueError(f"columns have {sorted(lengths)} rows; they must be equally long")
        self._columns = {name: _read_only(values) for name, values in columns.items()}
        self._rows = lengths.pop() if lengths else 0

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns by name, in order, as input for ``pandas.DataFrame`` or ``polars``."""
        return dict(self._columns)  # pandas takes other mappings for a single column

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column, (n,).

        Raises:
            ParameterError: no column has that name.
        """
        if name not in self._columns:
            raise ParameterError(f"no column is named '{name}'; there are {', '.join(self)}")
        return self._columns[name]

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as plain values by the names of the columns."""
        columns = [values.tolist() for values in self._columns.values()]
        return [dict(zip(self._columns, row, strict=True)) for row in zip(*columns, strict=True)]

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``.

        Raises:
            ParameterError: pandas is not installed.
        """
        try:
            from pandas import DataFrame  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415 - not ours to require
        except ImportError:
            raise ParameterError("pandas is not installed; get it by: pip install pandas") from None
        return DataFrame(self._columns)

    def __repr__(self) -> str:
        return f"Table of {self._rows:,} rows: {', '.join(self)}"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self)
        rows = zip(
            *(values[:_ROWS_SHOWN].tolist() for values in self._columns.values()), strict=True
        )
        body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
        more = self._rows - _ROWS_SHOWN
        note = f"<p>... and {more:,} more rows</p>" if more > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view


def _cell(value: object) -> str:
    shown = f"{value:,.6g}" if isinstance(value, float) else str(value)
    return f"<td>{html.escape(shown)}</td>"


def job_table(result: SimulationResult) -> Table:
    """Return a row per job in order of arrival, as ``jobs.csv``."""
    columns = _of_fields(JobOutcome, result.jobs)
    return Table({**columns, "jct_s": columns["end_s"] - columns["arrival_s"]})


def lease_table(result: SimulationResult) -> Table:
    """Return a row per lease in order of start, as ``leases.csv``."""
    return Table(_of_fields(LeaseSpan, result.leases))


def series_table(result: SimulationResult) -> Table:
    """Return the cluster over time, as ``series.csv``; each row holds until the next."""
    series = result.series
    busy = {f"busy_{name}": series.busy[:, k] for k, name in enumerate(result.worker_types)}
    return Table(
        {"time_s": series.time_s, "waiting": series.waiting, "running": series.running, **busy}
    )


def allocation_table(result: SimulationResult) -> Table:
    """Return X over time, as ``allocations.csv``; each row holds until the next."""
    x = result.allocations
    types = {f"workers_{name}": x.share[:, k] for k, name in enumerate(result.worker_types)}
    jobs = {f"job_type_{name}": x.share_by_job_type[:, b] for b, name in enumerate(x.by_job_type)}
    return Table({"time_s": x.time_s, **types, **jobs})


def summary_table(summaries: Sequence[Summary]) -> Table:
    """Return a row per run, as ``summary.csv``, timings too."""
    return Table(_of_fields(Summary, summaries))


def _of_fields(kind: type[Any], values: Iterable[Any]) -> dict[str, NDArray[Any]]:
    """Return the columns of a dataclass; its annotations say the types."""
    rows = list(values)
    return {
        f.name: _column([getattr(row, f.name) for row in rows], _DTYPES[str(f.type)])
        for f in fields(kind)
    }


def _column(values: list[Any], dtype: Any) -> NDArray[Any]:
    if dtype is not object:
        return np.array(values, dtype=dtype)  # None becomes NaN
    return np.fromiter(values, dtype=object, count=len(values))
