"""The oracle: configurations from a known throughput table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.packing import pair_configurations
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.domain.throughput import ProfileKey, ThroughputTable


def build_table(
    worker_types: tuple[str, ...],
    throughputs: ThroughputTable,
    keys: Sequence[ProfileKey],
    *,
    space_sharing: bool = False,
) -> ConfigurationTable:
    """Lay out every way in which jobs of the given profiles can run.

    A profile has one configuration per worker type on which it runs, in the order of
    ``worker_types``. A profile that the throughputs do not know, or that runs on none of the
    worker types, has none; admission then refuses its jobs.

    Args:
        worker_types: the K names, in the cluster's order.
        throughputs: steps/s alone and in pairs.
        keys: profile keys in the order wanted; profile ``u`` of the table is ``keys[u]``.
        space_sharing: add the pairs of jobs that may share workers (``planner.packing``).

    Returns:
        The table; its profiles keep the order of ``keys``.

    Raises:
        InputError: a key is listed twice.
    """
    if len(set(keys)) < len(keys):
        twice = next(k for k in keys if list(keys).count(k) > 1)
        raise InputError(f"profile key {twice!r} is listed twice; list every key once")
    profiles = tuple(_profile(worker_types, throughputs, key) for key in keys)
    pairs = pair_configurations(worker_types, throughputs, keys) if space_sharing else ()
    return ConfigurationTable.build(worker_types, profiles, pairs)


def _profile(
    worker_types: tuple[str, ...], throughputs: ThroughputTable, key: ProfileKey
) -> Profile:
    job_type, scale_factor = key
    row = throughputs.isolated.get(key, {})
    size = len(worker_types)
    configurations = tuple(
        Configuration(demand=unit_demand(k, size, scale_factor), throughput=row[name])
        for k, name in enumerate(worker_types)
        if row.get(name, 0.0) > 0.0
    )
    return Profile(job_type=job_type, scale_factor=scale_factor, configurations=configurations)


def unit_demand(k: int, size: int, count: int) -> tuple[int, ...]:
    """Return the (K,) demand of ``count`` workers of type ``k`` and none of the others."""
    return (0,) * k + (count,) + (0,) * (size - k - 1)
