"""Random problems over any number of worker types, with gangs, weights, pairs and dead rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies.testing import make_problem, make_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.domain.problem import Problem


def _random_problem(
    seed: int,
    *,
    jobs: int = 12,
    types: int = 3,
    profiles: int = 5,
    gangs: bool = False,
    pairs: bool = False,
    load: float = 1.5,
    dead: float = 0.1,
) -> Problem:
    """``load`` is the number of workers that the jobs ask for, over the number that there are."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.1, 10, (profiles, 1)) * rng.uniform(0.2, 5, (profiles, types))
    rates[rng.random(rates.shape) < dead] = 0.0
    factors = rng.choice([1, 2, 4], profiles) if gangs else np.ones(profiles, dtype=int)
    shared = {}
    for a in range(profiles if pairs else 0):
        for b in range(a, profiles):
            for k in range(types):
                alone = np.array([rates[a, k], rates[b, k]])
                if factors[a] == factors[b] and alone.min() > 0:
                    part = rng.uniform(0.3, 0.95, 2)
                    both = alone * (part if a != b else part[:1])
                    shared[a, b, k] = (float(both[0]), float(both[1]))
    rows = rng.integers(0, profiles, jobs)
    workers = max(types, round(factors[rows].sum() / load))
    remaining = rng.uniform(1e3, 1e6, jobs)
    return make_problem(
        make_table(rates.tolist(), scale_factor=factors.tolist(), shared=shared),
        capacity=np.maximum(1, rng.multinomial(workers, np.full(types, 1 / types))),
        profile=rows,
        remaining_steps=remaining,
        total_steps=remaining * 2,
        age_s=rng.uniform(0, 1e5, jobs),
        weight=rng.choice([1.0, 1.0, 3.0], jobs),
    )


@pytest.fixture
def random_problem() -> Callable[..., Problem]:
    """Return a maker of random problems; same seed, same problem."""
    return _random_problem
