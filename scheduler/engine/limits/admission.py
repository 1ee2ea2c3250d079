"""Admission: a job that can never run is refused, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.errors import AdmissionError

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.jobs.job import Job


def check_admission(
    job: Job,
    profile: int,
    table: ConfigurationTable,
    capacity: FloatArray,
    *,
    taken: bool = False,
    must_fit: bool = True,
) -> None:
    """Check that some configuration of the job fits the cluster.

    Args:
        job: the job.
        profile: its row of the table.
        table: configurations by profile.
        capacity: (K,) workers of each type, in service or not.
        taken: whether an active job already has this id.
        must_fit: whether a job that fits nowhere is refused; if not, it waits.

    Raises:
        AdmissionError: the job can never run; the message says why.
    """
    if taken:
        raise AdmissionError(
            f"job '{job.job_id}' is already here; submit it under another id, or cancel that one"
        )
    if not 0 <= profile < len(table.profiles):
        raise AdmissionError(
            f"job '{job.job_id}': profile {profile} is not in the configuration table "
            f"(it has {len(table.profiles)}); give job type '{job.job_type}' throughputs first"
        )
    if not must_fit:
        return
    runs = table.throughput[profile] > 0
    what = f"job '{job.job_id}' of type '{job.job_type}' at scale factor {job.scale_factor}"
    too_large = job.scale_factor > capacity.max(initial=0.0)
    if not runs.any() and not too_large:
        raise AdmissionError(
            f"{what} has zero throughput on every worker type "
            f"({', '.join(table.worker_types)}); add a throughput or a worker type that it runs on"
        )
    fits = runs & (table.demand[profile] <= capacity).all(axis=1)
    if not fits.any():
        demand = table.demand[profile][runs].sum(axis=1)
        smallest = demand.min(initial=job.scale_factor)
        room = ", ".join(
            f"{name}: {int(count)}"
            for name, count in zip(table.worker_types, capacity, strict=True)
        )
        raise AdmissionError(
            f"{what} needs at least {smallest} workers of one type, more than the cluster has "
            f"({room}); lower its scale factor or add workers"
        )
