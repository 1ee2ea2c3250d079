"""Throughputs of gangs that a table does not know, by a stated rule."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scheduler.domain.throughput import ProfileKey, ThroughputTable
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Share of the linear speed-up that is kept each time a gang doubles beyond what is known.
EFFICIENCY_PER_DOUBLING = 0.9


def extend_scale_factors(
    table: ThroughputTable,
    scale_factors: Iterable[int],
    *,
    efficiency_per_doubling: float = EFFICIENCY_PER_DOUBLING,
) -> ThroughputTable:
    """Add rows for scale factors that a job type lacks.

    The rule, for each job type that distributes (it has a row at some scale factor > 1) and each
    worker type, from the scale factors ``s`` at which it runs there with throughput ``T(s)``:

    - beyond the largest known one, S: ``T(n) = T(S) * (n / S) * efficiency ** log2(n / S)``;
    - between two known ones: on the straight line between them;
    - below the smallest known one: in proportion to the workers.

    Where no job type has a row beyond scale factor 1 nothing is known about which ones distribute,
    and all are taken to. Rows that are there already stay as they are, also where they say 0.
    Pairs are not extended.

    Args:
        table: what is known.
        scale_factors: those that are wanted.
        efficiency_per_doubling: share of the linear speed-up kept at each doubling, in (0, 1].

    Returns:
        The table with the rows added; the table itself when none is.
    """
    if not 0.0 < efficiency_per_doubling <= 1.0:
        raise InputError(
            f"efficiency_per_doubling is {efficiency_per_doubling}; give one in (0, 1]"
        )
    wanted = sorted({n for n in scale_factors if n > 1})
    curves = _curves(table)
    added: dict[ProfileKey, dict[str, float]] = {
        (job_type, n): {
            worker_type: _throughput(curve, n, efficiency_per_doubling)
            for worker_type, curve in curves[job_type].items()
        }
        for job_type in _distributing(table)
        for n in wanted
        if (job_type, n) not in table.isolated
    }
    if not added:
        return table
    return ThroughputTable(
        isolated={**table.isolated, **added}, shared=table.shared, source=table.source
    )


def _distributing(table: ThroughputTable) -> tuple[str, ...]:
    known = {job_type for job_type, scale_factor in table.isolated if scale_factor > 1}
    return tuple(t for t in table.job_types if t in known) if known else table.job_types


def _curves(table: ThroughputTable) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Return job type -> worker type -> (scale factor, steps/s) in ascending order."""
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for (job_type, scale_factor), row in sorted(table.isolated.items()):
        of_type = curves.setdefault(job_type, {})
        for worker_type, steps_per_s in row.items():
            if steps_per_s > 0.0:
                of_type.setdefault(worker_type, []).append((scale_factor, steps_per_s))
    return curves


def _throughput(curve: list[tuple[int, float]], n: int, efficiency: float) -> float:
    largest, at_largest = curve[-1]
    if n > largest:
        growth = n / largest
        return float(at_largest * growth * efficiency ** math.log2(growth))
    smallest, at_smallest = curve[0]
    if n < smallest:
        return at_smallest * n / smallest
    below = max(p for p in curve if p[0] < n)
    above = min(p for p in curve if p[0] > n)
    part = (n - below[0]) / (above[0] - below[0])
    return below[1] + part * (above[1] - below[1])
