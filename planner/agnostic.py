"""Heterogeneity off: the same problem, seen as if all worker types were alike.

The policy stays what it is; only the throughputs that it is shown change. This is the baseline that
heterogeneity-aware answers are compared with (Gavel, OSDI 2020, section 7, does the same by setting
every throughput to 1; a job's own first throughput keeps steps and seconds meaningful).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.domain.configuration import (
    Configuration,
    ConfigurationTable,
    PairConfiguration,
    Profile,
    margin,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.arrays import IntArray

#: Total workers held, locality and plan: among configurations that agree in these, only the worker
#: type differs.
_Shape = tuple[int, str, str]


def agnostic(table: ConfigurationTable) -> ConfigurationTable:
    """Return the table with every worker type as fast as the first one on which a job runs.

    Of a profile's configurations that hold equally many workers with the same locality and plan,
    each gets the throughput of the one on the first worker type. Where that is not its own, as far
    as is known, the figure says nothing about the worker type, and its doubt is infinite: what
    looks equal is not taken for equal, and turns on each type stay what makes shares equal.

    A pair's members keep the *slowdown* that sharing costs them on the first worker type on which
    the pair runs; where both also run alone there first, that is the pair's own throughput on that
    type.

    Args:
        table: as the planner built it.

    Returns:
        A table of the same shape, profiles, pairs and demands.
    """
    profiles = tuple(_flatten(profile) for profile in table.profiles)
    pairs = _flatten_pairs(table, profiles)
    return ConfigurationTable.build(table.worker_types, profiles, pairs)


def _flatten(profile: Profile) -> Profile:
    reference: dict[_Shape, Configuration] = {}
    for configuration in sorted(profile.configurations, key=_first_type):
        if configuration.throughput > 0.0:
            reference.setdefault(_shape(configuration), configuration)
    return replace(
        profile,
        configurations=tuple(
            _shown(c, reference[_shape(c)]) if c.throughput > 0.0 else c
            for c in profile.configurations
        ),
    )


def _shown(own: Configuration, first: Configuration) -> Configuration:
    """Return a configuration as fast as the first of its shape."""
    apart = abs(math.log(own.throughput / first.throughput))
    known = apart <= margin(own.doubt, first.doubt)
    return replace(own, throughput=first.throughput, doubt=own.doubt if known else math.inf)


def _first_type(configuration: Configuration) -> int:
    return next((k for k, count in enumerate(configuration.demand) if count), 0)


def _shape(configuration: Configuration) -> _Shape:
    return sum(configuration.demand), configuration.locality, configuration.plan


def _flatten_pairs(
    table: ConfigurationTable, flat: tuple[Profile, ...]
) -> tuple[PairConfiguration, ...]:
    slowdown: dict[tuple[int, int], tuple[float, float]] = {}
    alone = [_by_demand(profile) for profile in table.profiles]
    flat_alone = [_by_demand(profile) for profile in flat]
    order = _by_first_type(table.pair_demand)
    members = [(int(u), int(v)) for u, v in table.pair_profiles]
    demands = [tuple(int(d) for d in row) for row in table.pair_demand]
    for p in order:
        u, v = members[p]
        shared = table.pair_throughput[p]
        slowdown.setdefault(
            (u, v),
            (
                float(shared[0]) / alone[u][demands[p]],
                float(shared[1]) / alone[v][demands[p]],
            ),
        )
    return tuple(
        PairConfiguration(
            profiles=(u, v),
            demand=demand,
            throughput=(
                slowdown[u, v][0] * flat_alone[u][demand],
                slowdown[u, v][1] * flat_alone[v][demand],
            ),
        )
        for (u, v), demand in zip(members, demands, strict=True)
    )


def _by_demand(profile: Profile) -> Mapping[tuple[int, ...], float]:
    return {c.demand: c.throughput for c in reversed(profile.configurations)}


def _by_first_type(demand: IntArray) -> list[int]:
    """Return the pairs' positions, those on earlier worker types first."""
    first = (demand > 0).argmax(axis=1) if len(demand) else demand.sum(axis=1)
    return [int(p) for p in first.argsort(kind="stable")]
