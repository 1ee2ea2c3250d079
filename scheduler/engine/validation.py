"""Checks of what the engine is told, before it changes anything."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain import events as ev
from scheduler.errors import InputError

if TYPE_CHECKING:
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable


def check_event(event: ev.Event, cluster: Cluster, table: ConfigurationTable) -> None:
    """Refuse an event that cannot be a fact.

    Args:
        event: what the shell told.
        cluster: the workers.
        table: the configurations known so far.

    Raises:
        InputError: it names the event's field and value.
    """
    match event:
        case ev.ProgressReported():
            if len(event.lease_ids) != len(event.steps_done):
                raise InputError(
                    f"progress names {len(event.lease_ids)} leases and {len(event.steps_done)} "
                    "step counts; give one for each lease"
                )
        case ev.LeaseEnded():
            if not 0 <= event.steps_done < math.inf:
                raise InputError(
                    f"lease {event.lease_id} ended with {event.steps_done} steps done; "
                    "it must be a number >= 0"
                )
        case ev.WeightChanged():
            if not 0 < event.weight < math.inf:
                raise InputError(
                    f"weight of job '{event.job_id}' is {event.weight}; it must be > 0"
                )
        case ev.WorkersLost() | ev.WorkersReturned():
            wrong = [w for w in event.workers if not 0 <= w < cluster.workers]
            if wrong:
                raise InputError(
                    f"worker {wrong[0]} does not exist; workers are numbered 0 to "
                    f"{cluster.workers - 1}"
                )
        case ev.ConfigurationsChanged():
            _check_table(event.table, cluster, table)


def _check_table(new: ConfigurationTable, cluster: Cluster, old: ConfigurationTable) -> None:
    if new.worker_types != cluster.type_names:
        raise InputError(
            f"the configuration table is about {', '.join(new.worker_types)}, the cluster has "
            f"{', '.join(cluster.type_names)}; build the table for the cluster's types in its order"
        )
    keys = [(profile.job_type, profile.scale_factor) for profile in new.profiles]
    for u, profile in enumerate(old.profiles):
        if keys[u : u + 1] != [(profile.job_type, profile.scale_factor)]:
            raise InputError(
                f"profile {u} ('{profile.job_type}' at scale factor {profile.scale_factor}) has "
                "moved or is missing in the new configuration table; only append profiles"
            )


def fault_of(answer: ev.AllocationComputed, table: ConfigurationTable) -> str:
    """Return what makes an allocation unusable, empty if nothing does."""
    allocation = answer.allocation
    n, width = len(answer.job_number), table.throughput.shape[1]
    if allocation.x.ndim != 2 or len(allocation.x) != n or allocation.x.shape[1] > width:
        return f"x has the shape {allocation.x.shape}; it must be ({n}, {width})"
    if not np.isfinite(allocation.x).all() or not np.isfinite(allocation.pair_x).all():
        return "x has entries that are no numbers"
    return ""
