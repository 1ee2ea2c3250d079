"""Throughputs of gangs that a table does not know, by a stated rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.scaling import EFFICIENCY_PER_DOUBLING, steps_per_s_at
from scheduler.domain.throughput import ProfileKey, ThroughputTable
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable


def extend_scale_factors(
    table: ThroughputTable,
    scale_factors: Iterable[int],
    *,
    efficiency_per_doubling: float = EFFICIENCY_PER_DOUBLING,
) -> ThroughputTable:
    """Add rows for scale factors that a job type lacks.

    For each job type that distributes (it has a row at some scale factor > 1) and each worker type,
    by the rule of ``scheduler.domain.scaling`` from the scale factors at which it runs there.

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
            worker_type: steps_per_s_at(curve, n, efficiency_per_doubling=efficiency_per_doubling)
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
