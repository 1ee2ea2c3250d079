"""Half-life fair share: usage fades, weights stay, and heavy users give way."""

import itertools
import math

import numpy as np
import pytest

from policies.built_in.hierarchical import Hierarchical
from policies.built_in.max_min_fairness import MaxMinFairness
from policies.built_in.partitioned import Partitioned
from scheduler.domain.facts import events as ev
from scheduler.domain.fair_share import MOST_SHARES, factors, faded
from scheduler.domain.problem import Entity
from scheduler.engine.snapshot import decode_state, dump, encode_state, restore

HOUR = 3600.0
DAY = 24 * HOUR
EVERYBODY = np.array([True, True])
POLICIES = [Hierarchical(usage_half_life_s=6 * HOUR), MaxMinFairness(usage_half_life_s=6 * HOUR)]


@pytest.mark.parametrize(
    ("usage_s", "factor"),
    [
        ((10.0, 10.0), (1.0, 1.0)),  # just their shares
        ((10.0, 0.0), (0.5, 2.0)),  # twice the share, and nothing
        ((3.0, 1.0), (2**-0.5, 2**0.5)),
        ((0.0, 0.0), (1.0, 1.0)),  # no entity had used anything
    ],
)
def test_a_weight_is_doubled_for_nothing_and_halved_for_twice_the_share(usage_s, factor):
    assert factors(np.ones(2), np.array(usage_s), EVERYBODY) == pytest.approx(factor)


def test_usage_is_held_against_weight_among_those_who_compete():
    weight, usage_s = np.array([3.0, 1.0, 100.0]), np.array([30.0, 10.0, 0.0])
    found = factors(weight, usage_s, np.array([True, True, False]))
    assert found == pytest.approx([1.0, 1.0, 1.0])


def test_a_factor_never_falls_below_a_sixteenth():
    found = factors(np.array([1e-6, 1.0]), np.array([1.0, 0.0]), EVERYBODY)
    assert found == pytest.approx([2 ** (1 - MOST_SHARES), 2.0])


def test_usage_fades_by_half_in_every_half_life_and_what_is_held_counts_as_it_goes():
    nothing = np.zeros(1)
    assert faded(np.array([8.0]), nothing, elapsed_s=30.0, half_life_s=10.0) == pytest.approx([1.0])
    # Two workers held for 30 s, added up second by second.
    by_seconds = sum(2.0 * 2 ** (-(30 - t - 0.5) / 10) for t in range(30))
    found = faded(nothing, np.array([2.0]), elapsed_s=30.0, half_life_s=10.0)
    assert found == pytest.approx([by_seconds], rel=1e-3)


@pytest.fixture
def contest(start, job):
    """Return a function: `old` has had all four workers for a day when `new` comes."""

    def play(policy, *, weights=(1.0, 1.0)):
        shell = start(
            "type-0:4",
            allocate=policy.allocate,
            settings={
                "round_length_s": 600.0,
                "entities": tuple(
                    Entity(name=name, weight=weight)
                    for name, weight in zip(("old", "new"), weights, strict=True)
                ),
            },
        )
        shell.tell(
            ev.PolicyChanged(
                policy=policy.name,
                time_dependent=policy.time_dependent,
                usage_half_life_s=policy.half_life_s,
            )
        )
        for i in range(4):
            shell.submit(job(f"old-{i}", total_steps=1e9, entity="old"))
        shell.run(until_s=DAY)
        for i in range(4):
            shell.submit(job(f"new-{i}", total_steps=1e9, entity="new"))
        return shell

    return play


def part_of_new(shell, *, for_s):
    """Run on, and return which part of the workers `new` had in that time."""

    def had():
        jobs = shell.engine.jobs
        return jobs["attained_worker_s"][jobs["entity"] == 1].sum()

    before = had()
    shell.run(until_s=shell.now + for_s)
    return (had() - before) / (4 * for_s)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_who_had_everything_for_a_day_gives_way_until_the_other_has_caught_up(contest, policy):
    shell = contest(policy)
    parts = [part_of_new(shell, for_s=6 * HOUR) for _ in range(6)]
    # The same by hand: of usage u that is held against half, `new` gets 1 / (1 + 2^(4 u - 2)).
    u, step_s, expected = 0.0, 60.0, []
    total = 4 * 6 * HOUR / math.log(2) * (1 - 2**-4)  # worker-seconds of a day that have not faded
    for _ in range(6):
        got = []
        for _ in range(int(6 * HOUR / step_s)):
            share = 1 / (1 + 2 ** (4 * u - 2))
            got.append(share)
            fades = 2 ** (-step_s / (6 * HOUR))
            new = u * total * fades + share * 4 * step_s
            total = total * fades + 4 * step_s
            u = new / total
        expected.append(sum(got) / len(got))
    assert parts == pytest.approx(expected, abs=0.03)
    assert parts[0] > 0.6
    # Its lead halves at least in every half-life, until both have the same.
    ahead = [part - 0.5 for part in parts]
    assert all(later <= earlier / 2 + 0.02 for earlier, later in itertools.pairwise(ahead))
    assert parts[-1] == pytest.approx(0.5, abs=0.02)


def test_without_a_half_life_the_past_does_not_count(contest):
    shell = contest(Hierarchical())
    assert part_of_new(shell, for_s=6 * HOUR) == pytest.approx(0.5, abs=0.02)
    assert shell.engine.usage_s is None


def test_shares_stay_those_of_the_weights_in_the_long_run(contest):
    shell = contest(Hierarchical(usage_half_life_s=HOUR), weights=(1.0, 3.0))
    shell.run(until_s=shell.now + 12 * HOUR)
    assert part_of_new(shell, for_s=12 * HOUR) == pytest.approx(0.75, abs=0.02)


def test_a_restored_engine_knows_what_was_used_to_the_last_bit(contest):
    shell = contest(POLICIES[0])
    shell.run(until_s=shell.now + 5 * HOUR + 123.4)
    stored = decode_state(encode_state(dump(shell.engine)))
    again = restore(stored, shell.engine.settings)
    assert again.usage_s.tolist() == shell.engine.usage_s.tolist()
    shell.restart()  # from here on both engines must say the same
    shell.run(until_s=shell.now + 5 * HOUR)
    assert shell.engine.usage_s.tolist() == shell.twin.usage_s.tolist()


def test_another_half_life_keeps_what_was_used_and_none_forgets_it(contest):
    shell = contest(POLICIES[0])
    before = shell.engine.usage_s
    change = {"policy": "hierarchical", "time_dependent": True}
    shell.tell(ev.PolicyChanged(**change, usage_half_life_s=HOUR))
    assert shell.engine.usage_s.tolist() == before.tolist()
    shell.tell(ev.PolicyChanged(**change))
    assert shell.engine.usage_s is None
    shell.tell(ev.PolicyChanged(**change, usage_half_life_s=HOUR))
    assert shell.engine.usage_s.tolist() == [0.0, 0.0]


def test_a_policy_with_a_half_life_is_asked_again_as_time_goes_by():
    inner = Partitioned.from_text({"policy": "hierarchical", "policy.usage_half_life_s": "60"})
    assert (inner.time_dependent, inner.half_life_s) == (True, 60.0)
    assert (Hierarchical().time_dependent, Hierarchical().half_life_s) == (False, 0.0)
    assert all(policy.time_dependent for policy in POLICIES)
