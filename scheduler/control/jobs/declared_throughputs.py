"""Declared steps/s of jobs: learned once the cluster has the worker type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.throughputs.ways import declarations

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from scheduler.control.state.state import ControlState
    from scheduler.domain.jobs.spec import JobSpec


def declare_own(state: ControlState, spec: JobSpec) -> None:
    """Learn the throughputs that a new job declares for worker types of the cluster.

    Its other figures stay in its specification, so that made-up worker types cost nothing.
    """
    there = set(state.engine.cluster.type_names)
    _declare(state, (figure for figure in declarations(spec) if figure[2] in there))


def declare_missing(
    state: ControlState, specs: Iterable[JobSpec], worker_types: Collection[str]
) -> None:
    """Learn the throughputs that jobs declare for worker types, except those already declared.

    Args:
        state: of the leader.
        specs: of the jobs, oldest first; if two declare the same figure, the newer one counts.
        worker_types: of the cluster.
    """
    newest = {
        (job_type, scale, worker_type): rate
        for spec in specs
        for job_type, scale, worker_type, rate in declarations(spec)
        if worker_type in worker_types
    }
    missing = (key for key in newest if state.knowledge.declared(*key) is None)
    _declare(state, ((*key, newest[key]) for key in missing))


def declare_joined(state: ControlState) -> None:
    """Learn declared throughputs of active jobs for worker types that the table has no rows of."""
    table = state.engine.table
    joined = {name for k, name in enumerate(table.worker_types) if not table.demand[:, :, k].any()}
    if joined:
        records = sorted(state.jobs.by_id.values(), key=lambda record: record.number)
        declare_missing(state, (record.spec for record in records), joined)


def _declare(state: ControlState, figures: Iterable[tuple[str, int, str, float]]) -> None:
    news = [state.knowledge.declare(*figure) for figure in figures]
    state.table_due |= any(news)
    state.estimates_due |= any(news)
