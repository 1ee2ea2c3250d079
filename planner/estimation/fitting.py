"""The fit to known figures, with bounded rows and columns so that it never takes long.

Users may declare figures for their jobs, so users decide how many figures there are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from planner.estimation.completion import SpeedModel, fit_speed_model

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from planner.estimation.measured import MeasuredFigure

    #: Worker type -> figures of a job type there, at one scale factor.
    Cells: TypeAlias = Mapping[str, MeasuredFigure]

#: Most worker types of a fit.
MOST_COLUMNS: Final = 32
#: Most rows of a fit.
MOST_ROWS: Final = 256

#: Worker type -> (log steps/s, its variance).
Row = dict[str, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A model and the worker types that it knows.

    Attributes:
        columns: worker type -> its column of the model.
        model: fitted.
    """

    columns: Mapping[str, int]
    model: SpeedModel

    def complete(self, given: Row) -> Row:
        """Return a row on all worker types of the model, with the given figures of other types."""
        known = np.zeros(len(self.columns), dtype=bool)
        logs, variance = np.zeros((2, len(known)))
        for worker_type, (log, own) in given.items():
            k = self.columns.get(worker_type)
            if k is not None:
                known[k], logs[k], variance[k] = True, log, own
        if not known.any():
            return given
        mean, spread = self.model.complete(known, logs, variance)
        return given | {
            worker_type: (float(mean[k]), float(spread[k]))
            for worker_type, k in self.columns.items()
        }


def fit_known(rows: Iterable[Cells], columns: Sequence[str], served: Collection[str]) -> Fitted:
    """Fit the model to the log steps/s of the rows with known figures.

    Args:
        rows: in the order of first mention.
        columns: worker types in that order.
        served: worker types of the cluster, which come first if there are too many.
    """
    known = [row for row in rows if any(cell.known for cell in row.values())]
    index = {name: k for k, name in enumerate(_columns(known, columns, served))}
    known = _rows(known, index)
    logs = np.full((len(known), len(index)), np.nan)
    for i, row in enumerate(known):
        for worker_type, cell in row.items():
            if cell.known and worker_type in index:
                logs[i, index[worker_type]] = cell.belief()[0]
    return Fitted(columns=index, model=fit_speed_model(logs))


def _columns(
    rows: Sequence[Cells], columns: Sequence[str], served: Collection[str]
) -> Sequence[str]:
    """Return the cluster's worker types first, then those with most rows; in the given order."""
    if len(columns) <= MOST_COLUMNS:
        return columns
    seen = Counter(name for row in rows for name, cell in row.items() if cell.known)
    ranked = sorted(columns, key=lambda name: (name not in served, -seen[name]))
    chosen = set(ranked[:MOST_COLUMNS])
    return [name for name in columns if name in chosen]


def _rows(rows: Sequence[Cells], columns: Collection[str]) -> list[Cells]:
    """Return the measured rows first, then those with most figures; in the given order."""
    ranks = [_rank(row, columns) for row in rows]
    there = [i for i, (_, figures) in enumerate(ranks) if figures]
    best = sorted(there, key=lambda i: ranks[i])[:MOST_ROWS]
    return [rows[i] for i in sorted(best)]


def _rank(row: Cells, columns: Collection[str]) -> tuple[bool, int]:
    """Return whether nothing was measured, and minus the number of figures."""
    known = [cell for name, cell in row.items() if cell.known and name in columns]
    return not any(cell.weight for cell in known), -len(known)
