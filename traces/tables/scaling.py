"""Throughputs at worker counts that a table lacks, by a fixed rule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.domain.throughputs.scaling import EFFICIENCY_PER_DOUBLING, may_run_at, steps_per_s_at
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.domain.throughputs.throughput import ProfileKey, ThroughputTable


def with_counts(table: ThroughputTable, counts: Iterable[int]) -> ThroughputTable:
    """Return the table with rows for some worker counts if it derives them, else unchanged."""
    return extend_scale_factors(table, counts) if table.derive_counts else table


def extend_scale_factors(
    table: ThroughputTable,
    scale_factors: Iterable[int],
    *,
    efficiency_per_doubling: float = EFFICIENCY_PER_DOUBLING,
) -> ThroughputTable:
    """Add rows for scale factors that a job type lacks.

    Rows are added for each job type that distributes (it has a row at some scale factor > 1) and
    each worker type. They follow the rules of ``scheduler.domain.throughputs.scaling`` from the
    scale factors at which the job type runs there, or does not.

    If no job type has a row beyond scale factor 1, all are assumed to distribute. Existing rows do
    not change. Pairs are not extended.

    Args:
        table: the known throughputs.
        scale_factors: the wanted scale factors.
        efficiency_per_doubling: share of the linear speed-up kept at each doubling, in (0, 1].

    Returns:
        The table with the rows added; the table itself if no row is added.
    """
    if not 0.0 < efficiency_per_doubling <= 1.0:
        raise InputError(
            f"efficiency_per_doubling is {efficiency_per_doubling}; give one in (0, 1]"
        )
    wanted = sorted({n for n in scale_factors if n > 1})
    curves = _curves(table)
    added: dict[ProfileKey, dict[str, float]] = {
        (job_type, n): {
            worker_type: steps_per_s_at(
                [known for known in curve if known[1] > 0.0],
                n,
                efficiency_per_doubling=efficiency_per_doubling,
            )
            for worker_type, curve in curves[job_type].items()
            if may_run_at([(count, steps_per_s > 0.0) for count, steps_per_s in curve], n)
        }
        for job_type in _distributing(table)
        for n in wanted
        if (job_type, n) not in table.isolated
    }
    return replace(table, isolated={**table.isolated, **added}) if added else table


def _distributing(table: ThroughputTable) -> tuple[str, ...]:
    known = {job_type for job_type, scale_factor in table.isolated if scale_factor > 1}
    return tuple(t for t in table.job_types if t in known) if known else table.job_types


def _curves(table: ThroughputTable) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Return job type -> worker type -> (scale factor, steps/s) in ascending order.

    A worker type on which the job type runs at some scale factor has a figure at each of them.
    """
    worker_types = table.worker_types
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for (job_type, scale_factor), row in sorted(table.isolated.items()):
        for worker_type in worker_types:
            steps_per_s = row.get(worker_type, 0.0)
            curve = curves.setdefault(job_type, {}).setdefault(worker_type, [])
            curve.append((scale_factor, steps_per_s))
    return {
        job_type: {k: curve for k, curve in of_type.items() if any(rate > 0.0 for _, rate in curve)}
        for job_type, of_type in curves.items()
    }
