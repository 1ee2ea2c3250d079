"""Small allocation problems for tests of policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.domain.configuration import (
    Configuration,
    ConfigurationTable,
    PairConfiguration,
    Profile,
)
from scheduler.domain.problem import Entity, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.domain.arrays import FloatArray


def make_table(
    throughput: Sequence[Sequence[float]],
    *,
    scale_factor: Sequence[int] | None = None,
    doubt: float = 0.0,
    shared: Mapping[tuple[int, int, int], tuple[float, float]] | None = None,
) -> ConfigurationTable:
    """Build a table of profiles that run on workers of one type each.

    Args:
        throughput: steps/s of each profile on each of the K worker types; 0 if it does not run.
        scale_factor: workers that each profile holds; 1 by default.
        doubt: of every throughput, see ``Configuration``.
        shared: (profile, profile, worker type) -> steps/s of each of the two, which have the same
            scale factor, while they share workers.
    """
    types = len(throughput[0])
    gangs = [1] * len(throughput) if scale_factor is None else list(scale_factor)

    def demand(k: int, workers: int) -> tuple[int, ...]:
        return tuple(workers if i == k else 0 for i in range(types))

    profiles = tuple(
        Profile(
            job_type=f"profile-{u}",
            scale_factor=gang,
            configurations=tuple(
                Configuration(demand=demand(k, gang), throughput=float(rate), doubt=doubt)
                for k, rate in enumerate(row)
                if rate > 0
            ),
        )
        for u, (row, gang) in enumerate(zip(throughput, gangs, strict=True))
    )
    pairs = tuple(
        PairConfiguration(profiles=(a, b), demand=demand(k, gangs[a]), throughput=rates)
        for (a, b, k), rates in (shared or {}).items()
    )
    return ConfigurationTable.build(tuple(f"type-{k}" for k in range(types)), profiles, pairs)


def make_problem(
    table: ConfigurationTable,
    *,
    capacity: Sequence[float],
    profile: Sequence[int] | None = None,
    remaining_steps: Sequence[float] | float = 1000.0,
    **figures: Sequence[float] | float | tuple[Entity, ...],
) -> Problem:
    """Return a problem with one waiting job per entry of ``profile``, new and of weight 1.

    Args:
        table: configurations by profile.
        capacity: (K,) workers of each type.
        profile: (N,) row of the table of each job; by default one job per row.
        remaining_steps: (N,) steps to go, or one number for all.
        figures: further fields of ``Problem``: (N,) values or one number for all jobs;
            ``cost_usd_per_hour`` (K,), ``entities`` and ``now_s`` as they are.
    """
    rows = np.arange(len(table.profiles)) if profile is None else np.asarray(profile)
    n = len(rows)
    remaining = _filled(remaining_steps, n)
    values: dict[str, Any] = {
        "now_s": 0.0,
        "cost_usd_per_hour": np.ones(len(capacity)),
        "job_number": np.arange(n),
        "scale_factor": np.array([table.profiles[u].scale_factor for u in rows]),
        "weight": np.ones(n),
        "total_steps": remaining,
        "age_s": np.zeros(n),
        "time_left_s": np.full(n, np.inf),
        "attained_worker_s": np.zeros(n),
        "entity": np.zeros(n, dtype=np.int64),
        "entities": (Entity(name=""),),
        "held": np.full(n, -1),
        "restart_s": np.zeros(n),
    }
    for name, given in figures.items():
        if name in {"entities", "now_s", "round_length_s"}:
            values[name] = given
        elif name == "cost_usd_per_hour":
            values[name] = np.asarray(given, dtype=float)
        else:
            whole = name in {"job_number", "entity", "held", "scale_factor", "restarts"}
            values[name] = _filled(given, n).astype(np.int64 if whole else float)
    return Problem(
        table=table,
        capacity=np.asarray(capacity, dtype=float),
        profile=rows.astype(np.int64),
        remaining_steps=remaining,
        **values,
    )


def _filled(values: object, n: int) -> FloatArray:
    return np.broadcast_to(np.asarray(values, dtype=float), n).copy()
