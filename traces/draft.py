"""Drafts: the lines of a trace before job types, steps and deadlines are resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from traces.trace import Conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One job as its line states it.

    Attributes:
        line: 1-based line of the file.
        arrival_s: as in the file; ``Drafts.relative`` says whether the first one becomes 0.
        scale_factor: workers that the job holds at once.
        job_id: or empty, for its position in the file.
        job_type: or empty if a type is to be drawn.
        total_steps: or None if ``duration_s`` is given.
        duration_s: seconds on the reference worker type, or None if ``total_steps`` is given.
        slo: deadline as a multiple of the duration on the reference worker type, or None.
        deadline_s: absolute deadline, or None.
        weight: importance.
        entity: team or user.
        max_failures: failures of the job itself that are retried.
        restart_s: seconds of work that a change of workers costs.
        restarts: the same for some workers, see ``Job.restarts``.
        scale_factors: worker counts at which the job can run, ascending; empty for a single one.
        labels: passed on unchanged.
        checkpoints: whether the job saves its work when it is preempted.
        preemptible: whether other jobs may take its workers before it completes.
        min_run_time_s: time for which a lease is not revoked.
        worker_types: allowed worker types, sorted; empty for any.
        mixed_gangs: whether the job may run on workers of two types at once.
        conditions: conditions under which the job may run; None without any.
    """

    line: int
    arrival_s: float
    scale_factor: int
    job_id: str = ""
    job_type: str = ""
    total_steps: float | None = None
    duration_s: float | None = None
    slo: float | None = None
    deadline_s: float | None = None
    weight: float = 1.0
    entity: str = ""
    max_failures: int = 3
    restart_s: float = 0.0
    restarts: Mapping[str, float] = field(default_factory=dict)
    scale_factors: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    checkpoints: bool = True
    preemptible: bool = True
    min_run_time_s: float = 0.0
    worker_types: tuple[str, ...] = ()
    mixed_gangs: bool = False
    conditions: Conditions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """All lines of a file.

    Attributes:
        jobs: in the order of the file.
        relative: whether arrivals count from the earliest one.
        size_field: the file's name of the scale factor, for messages.
        notes: the file's remarks about itself.
    """

    jobs: list[Draft]
    relative: bool = False
    size_field: str = "scale_factor"
    notes: tuple[str, ...] = ()
