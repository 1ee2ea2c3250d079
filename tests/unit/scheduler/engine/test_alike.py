"""Which configurations are of equal value: the compiled search beside its definition."""

import math

import numpy as np
import pytest

from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile, margin
from scheduler.engine.rounds.equivalence import EquivalentConfigurations

TYPES = ("a", "b", "c")


def drawn_table(rng):
    """Draw profiles of up to twelve configurations, many of them nearly as fast as another."""
    profiles = []
    for _ in range(int(rng.integers(1, 6))):
        ways = []
        for _ in range(int(rng.integers(0, 13))):
            demand = [0, 0, 0]
            demand[rng.integers(3)] = int(rng.choice([1, 2, 4]))
            ways.append(
                Configuration(
                    demand=tuple(demand),
                    throughput=float(rng.choice([0.0, 1.0, 2.0]) * rng.choice([1.0, 1.02, 1.09])),
                    doubt=float(rng.choice([0.0, 0.01, 0.05, 1.0, math.inf])),
                )
            )
        profiles.append(Profile(job_type="x", scale_factor=1, configurations=tuple(ways)))
    return ConfigurationTable.build(TYPES, tuple(profiles))


def defined(table, price_of_worker):
    """Return the groups of each profile, by comparing one with another."""
    groups = []
    for u, profile in enumerate(table.profiles):
        group = list(range(table.throughput.shape[1]))
        ways, grouped = profile.configurations, set()
        price = [float(np.dot(way.demand, price_of_worker)) for way in ways]
        for j in sorted(range(len(ways)), key=lambda j: (-ways[j].throughput, j)):
            if ways[j].throughput <= 0 or j in grouped:
                continue
            same = [
                i
                for i, way in enumerate(ways)
                if i not in grouped and way.throughput > 0
                if i == j
                or (
                    sum(way.demand) == sum(ways[j].demand)
                    and math.isclose(price[i], price[j], rel_tol=1e-9)
                    and math.log(ways[j].throughput / way.throughput)
                    <= float(margin(ways[j].doubt, way.doubt))
                )
            ]
            grouped |= set(same)
            for i in same:
                group[i] = same[0]
        groups.append(group)
        assert len(group) == len(table.throughput[u])
    return groups


@pytest.mark.parametrize("seed", range(60))
def test_groups_are_as_defined(seed):
    rng = np.random.default_rng(seed)
    table = drawn_table(rng)
    prices = rng.choice([0.0, 1.0, 2.0], size=3)
    equivalent = EquivalentConfigurations.of(table, prices)
    assert equivalent.group.tolist() == defined(table, prices)
    own = np.arange(equivalent.group.shape[1])
    assert equivalent.shared.tolist() == (equivalent.group != own).any(axis=1).tolist()
    assert equivalent.any == bool(equivalent.shared.any())


def test_some_draws_have_groups_and_some_have_none():
    found = {
        EquivalentConfigurations.of(drawn_table(np.random.default_rng(s)), np.ones(3)).any
        for s in range(60)
    }
    assert found == {True, False}
