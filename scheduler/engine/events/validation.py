"""Checks of the engine's input, before it changes the state."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.facts import events as ev
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.engine.tables.fleet import Fleet


class Checker:
    """Checks the events of one call; later events may use nodes and types of earlier ones.

    Args:
        fleet: the workers before the call.
        table: the configurations before the call.
    """

    def __init__(self, fleet: Fleet, table: ConfigurationTable) -> None:
        self._fleet = fleet
        self._table = table
        self._workers = fleet.workers
        self._types = fleet.type_names
        #: node name -> its workers, for nodes that join in this call.
        self._joined: dict[str, range] = {}
        #: workers that retire in this call.
        self._retired: set[int] = set()

    def check(self, event: ev.Event) -> None:
        """Refuse a malformed event.

        Raises:
            InputError: the message names the event's field and value.
        """
        match event:
            case ev.ProgressReported():
                if len(event.lease_ids) != len(event.steps_done):
                    raise InputError(
                        f"progress names {len(event.lease_ids)} leases and "
                        f"{len(event.steps_done)} step counts; give one for each lease"
                    )
            case ev.LeaseEnded():
                if not 0 <= event.steps_done < math.inf:
                    raise InputError(
                        f"lease {event.lease_id} ended with {event.steps_done} steps done; "
                        "it must be a number >= 0"
                    )
                if event.ran_s is not None and not 0 <= event.ran_s < math.inf:
                    raise InputError(
                        f"lease {event.lease_id} ran for {event.ran_s} s; it must be >= 0, or None"
                    )
            case ev.LeasesReleased() | ev.RestartsMeasured() | ev.LengthsRevised():
                _check_columns(event)
            case ev.WeightChanged() | ev.DeadlineChanged() | ev.JobDeferred():
                _check_job(event)
            case ev.ConfigurationsChanged():
                self._check_table(event.table)
            case ev.NodesJoined():
                self._check_nodes(event)
            case _:
                self._check_workers(event)

    def _check_workers(self, event: ev.Event) -> None:
        match event:
            case ev.WorkersLost() | ev.WorkersReturned() | ev.WorkersCordoned():
                self._check_known(event.workers)
            case ev.WorkersDrained():
                self._check_known(event.workers)
                if math.isnan(event.by_s):
                    raise InputError(f"workers are drained by_s {event.by_s}; it must be a time")
            case ev.WorkersRetired():
                self._check_known(event.workers)
                self._retired |= set(event.workers)

    def _check_known(self, workers: tuple[int, ...]) -> None:
        wrong = [w for w in workers if not 0 <= w < self._workers]
        if wrong and not self._workers:
            raise InputError(f"worker {wrong[0]} does not exist; no node has joined yet")
        if wrong:
            raise InputError(
                f"worker {wrong[0]} does not exist; workers are numbered 0 to {self._workers - 1}"
            )

    def _check_nodes(self, event: ev.NodesJoined) -> None:
        for kind in event.worker_types:
            if kind.name in self._types:
                raise InputError(
                    f"worker type '{kind.name}' is known already; name only new ones with the nodes"
                )
            self._types = (*self._types, kind.name)
        for node in event.nodes:
            unknown = [name for name in node.workers if name not in self._types]
            if unknown:
                raise InputError(
                    f"node '{node.name}' has a worker of type '{unknown[0]}', which is not among "
                    f"the worker types ({', '.join(self._types)}); name it with the nodes"
                )
            workers = self._joined.get(node.name) or self._fleet.workers_of(node.name)
            if not self._all_retired(workers):
                raise InputError(
                    f"node '{node.name}' is here already; retire its workers "
                    f"({workers.start} to {workers.stop - 1}) before it joins again"
                )
            self._joined[node.name] = range(self._workers, self._workers + len(node.workers))
            self._workers += len(node.workers)

    def _all_retired(self, workers: Iterable[int]) -> bool:
        retired = self._fleet.retired
        return all(w in self._retired or (w < len(retired) and retired[w]) for w in workers)

    def _check_table(self, new: ConfigurationTable) -> None:
        if new.worker_types != self._types:
            raise InputError(
                f"the configuration table is about {', '.join(new.worker_types)}, the cluster has "
                f"{', '.join(self._types)}; build the table for the cluster's types in its order"
            )
        keys = [(profile.job_type, profile.scale_factor) for profile in new.profiles]
        for u, profile in enumerate(self._table.profiles):
            if keys[u : u + 1] != [(profile.job_type, profile.scale_factor)]:
                raise InputError(
                    f"profile {u} ('{profile.job_type}' at scale factor {profile.scale_factor}) "
                    "has moved or is missing in the new configuration table; only append profiles"
                )
        self._table = new


def _check_columns(event: ev.LeasesReleased | ev.RestartsMeasured | ev.LengthsRevised) -> None:
    if isinstance(event, ev.LeasesReleased):
        _check_released(event)
    elif isinstance(event, ev.RestartsMeasured):
        _check_restarts(event)
    else:
        _check_lengths(event)


def _check_released(event: ev.LeasesReleased) -> None:
    if len(event.lease_ids) != len(event.steps_done):
        raise InputError(
            f"{len(event.lease_ids)} leases ended with {len(event.steps_done)} step counts; "
            "give one for each lease"
        )
    if len(set(event.lease_ids.tolist())) != len(event.lease_ids):
        raise InputError(f"leases {event.lease_ids.tolist()} ended; name each only once")
    wrong = np.flatnonzero(~((event.steps_done >= 0) & (event.steps_done < math.inf)))
    if len(wrong):
        raise InputError(
            f"lease {event.lease_ids[wrong[0]]} ended with {event.steps_done[wrong[0]]} steps "
            "done; it must be a number >= 0"
        )


def _check_restarts(event: ev.RestartsMeasured) -> None:
    if len(event.job_ids) != len(event.restart_s):
        raise InputError(
            f"restarts name {len(event.job_ids)} jobs and {len(event.restart_s)} times; "
            "give one for each job"
        )
    if event.restarts and len(event.job_ids) != len(event.restarts):
        raise InputError(
            f"restarts name {len(event.job_ids)} jobs and costs on some workers for "
            f"{len(event.restarts)}; give one each, or none"
        )
    for job_id, restart_s in zip(event.job_ids, event.restart_s.tolist(), strict=True):
        if not 0 <= restart_s < math.inf:
            raise InputError(f"restart_s of job '{job_id}' is {restart_s}; it must be >= 0")


def _check_lengths(event: ev.LengthsRevised) -> None:
    if len(event.job_ids) != len(event.total_steps):
        raise InputError(
            f"lengths name {len(event.job_ids)} jobs and {len(event.total_steps)} step counts; "
            "give one for each job"
        )
    for job_id, total_steps in zip(event.job_ids, event.total_steps.tolist(), strict=True):
        if not 0 < total_steps < math.inf:
            raise InputError(f"total_steps of job '{job_id}' is {total_steps}; it must be > 0")


def _check_job(event: ev.WeightChanged | ev.DeadlineChanged | ev.JobDeferred) -> None:
    if isinstance(event, ev.WeightChanged):
        if not 0 < event.weight < math.inf:
            raise InputError(f"weight of job '{event.job_id}' is {event.weight}; it must be > 0")
    elif isinstance(event, ev.JobDeferred):
        if math.isnan(event.until_s):
            raise InputError(
                f"job '{event.job_id}' is deferred until_s {event.until_s}; it must be a time"
            )
    elif event.deadline_s is not None and math.isnan(event.deadline_s):
        raise InputError(
            f"deadline_s of job '{event.job_id}' is {event.deadline_s}; it must be a time, or None"
        )


def fault_of(answer: ev.AllocationComputed, table: ConfigurationTable) -> str:
    """Return why an allocation is unusable, empty if it is usable."""
    allocation = answer.allocation
    n, width = len(answer.job_number), table.throughput.shape[1]
    if allocation.x.ndim != 2 or len(allocation.x) != n or allocation.x.shape[1] > width:
        return f"x has the shape {allocation.x.shape}; it must be ({n}, {width})"
    if not np.isfinite(allocation.x).all() or not np.isfinite(allocation.pair_x).all():
        return "x has entries that are no numbers"
    if allocation.no_backfill is not None and allocation.no_backfill.shape != (n,):
        return f"no_backfill has the shape {allocation.no_backfill.shape}; it must be ({n},)"
    return ""
