"""Goodput: gains by hand, and answers against every whole allocation there is."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.built_in.goodput import LEAST_LEFT, Goodput
from policies.built_in.partitioned import Partitioned
from policies.registry import make_policy
from policies.testing import make_problem
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile
from scheduler.errors import ParameterError


def stretching(*rows, types=("t4", "a100")):
    """Rows of {(type, count): steps/s}, one profile each, configurations in that order."""
    profiles = tuple(
        Profile(
            job_type=f"profile-{u}",
            scale_factor=min(n for _, n in row),
            configurations=tuple(
                Configuration(demand=tuple(n if k == t else 0 for k in types), throughput=rate)
                for (t, n), rate in row.items()
            ),
        )
        for u, row in enumerate(rows)
    )
    return ConfigurationTable.build(types, profiles)


def chosen(answer):
    return [int(row.argmax()) if row.any() else -1 for row in answer.x]


def costs_by_hand(problem, power, waiting, relative_to):
    """(N, J) cost of each configuration and (N,) of waiting, job by job from the docstring."""
    gains, moved, ran = {}, {}, []
    fair = int(np.ceil(problem.capacity.sum() / problem.jobs))
    for n in range(problem.jobs):
        rates, demand = problem.throughput[n], problem.demand[n]
        fits = (demand <= problem.capacity).all(axis=1)
        ways = [j for j in range(len(rates)) if rates[j] > 0 and fits[j]]
        workers = {j: int(demand[j].sum()) for j in ways}
        if relative_to == "least":
            unit = min(rates[j] for j in ways) / min(workers.values())
        else:
            sums = []
            for k, there in enumerate(problem.capacity):
                on = [j for j in ways if demand[j][k] > 0]
                if not on:
                    continue
                within = [rates[j] for j in on if workers[j] <= fair]
                few = min(on, key=lambda j: workers[j])
                sums.append((there, max(within) if within else rates[few] * fair / workers[few]))
            unit = sum(w * r for w, r in sums) / sum(w for w, _ in sums)
        age, one, starts = problem.age_s[n], problem.restart_s[n], problem.restarts[n]
        attained = problem.attained_worker_s[n]
        part = min((attained / min(workers.values()) + 120) / (age + 120), 1.0)
        ran.append(part / 2 if problem.held[n] >= 0 else part)
        left = 1.0
        if (problem.held[n] >= 0 or attained > 0) and age >= one > 0:
            left = min(max((age - starts * one) / (age + one), LEAST_LEFT), 1.0)
        for j in ways:
            gains[n, j] = rates[j] / unit
            moved[n, j] = gains[n, j] * (1.0 if problem.held[n] == j else left)
    worst = max(g**power for g in gains.values())
    waits = [waiting * worst * part**power for part in ran]
    return {key: g**power for key, g in moved.items()}, waits


def random_stretching(seed):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(4):
        speed = rng.uniform(1, 3, 2)
        bend = rng.uniform(0.3, 1.0)
        rows.append(
            {
                (t, n): float(speed[k] * n**bend)
                for k, t in enumerate(("t4", "a100"))
                for n in (1, 2, 4)
                if rng.random() < 0.8 or (t, n) == ("t4", 1)
            }
        )
    table = stretching(*rows)
    held = [int(rng.integers(-1, len(row))) for row in rows]
    return make_problem(
        table,
        capacity=[3, 2],
        held=held,
        age_s=rng.uniform(0, 2000, 4),
        restart_s=rng.choice([0.0, 30.0, 200.0], 4),
        restarts=rng.integers(0, 4, 4),
        weight=rng.choice([1.0, 2.0], 4),
        attained_worker_s=rng.choice([0.0, 100.0, 3000.0], 4),
        round_length_s=60.0,
    )


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    power=st.sampled_from([-0.5, -1.0, -4.0]),
    relative_to=st.sampled_from(["least", "fair_share"]),
)
def test_no_whole_allocation_has_a_better_power_mean(seed, power, relative_to):
    problem = random_stretching(seed)
    policy = Goodput(power=power, waiting=1.3, relative_to=relative_to)
    cost, waits = costs_by_hand(problem, power, 1.3, relative_to)

    def total(choice):
        held = sum(
            (problem.demand[n, j] for n, j in enumerate(choice) if j >= 0), np.zeros(2, dtype=int)
        )
        if (held > problem.capacity).any():
            return np.inf
        return sum(
            problem.weight[n] * (cost[n, j] if j >= 0 else waits[n]) for n, j in enumerate(choice)
        )

    ways = [[-1, *(j for m, j in cost if m == n)] for n in range(problem.jobs)]
    best = min(total(choice) for choice in product(*ways))
    answer = policy.allocate(problem)
    assert set(np.unique(answer.x)) <= {0.0, 1.0}
    slack = 1.1e-4 * problem.weight @ waits
    assert total(chosen(answer)) <= best + slack


def test_a_job_that_scales_well_gets_the_workers_that_another_hardly_uses():
    well = {("t4", n): float(n) for n in (1, 2, 4)}
    badly = {("t4", n): n**0.1 for n in (1, 2, 4)}
    problem = make_problem(stretching(well, badly, types=("t4",)), capacity=[5])
    assert chosen(Goodput().allocate(problem)) == [2, 0]


def test_no_job_waits_so_that_another_may_grow():
    well = {("t4", n): float(n) for n in (1, 2, 4)}
    badly = {("t4", n): n**0.1 for n in (1, 2, 4)}
    table = stretching(well, badly, types=("t4",))
    for profile in ([0, 0, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0]):
        problem = make_problem(table, profile=profile, capacity=[4])
        assert chosen(Goodput().allocate(problem)) == [0, 0, 0, 0]
    problem = make_problem(table, profile=[0, 0, 1, 1], capacity=[4])
    assert chosen(Goodput(waiting=1.1).allocate(problem)) == [1, 1, -1, -1]


def served_by_turns(table, profile, capacity, rounds, policy=None):
    """(R, N) which jobs run in each round, if none ends; all come at once."""
    policy = policy or Goodput()
    jobs = len(profile)
    attained, held, ran = np.zeros(jobs), np.full(jobs, -1), []
    for n in range(rounds):
        problem = make_problem(
            table,
            profile=profile,
            capacity=capacity,
            age_s=60.0 * n,
            attained_worker_s=attained,
            held=held,
            round_length_s=60.0,
        )
        held = np.array(chosen(policy.allocate(problem)))
        workers = problem.demand.sum(axis=2)[np.arange(jobs), np.maximum(held, 0)]
        attained = attained + 60.0 * workers * (held >= 0)
        ran.append(held >= 0)
    return np.array(ran)


@pytest.mark.parametrize("power", [-0.5, -1.0, 1.0])
def test_with_more_jobs_than_workers_each_job_has_its_turn(power):
    """Seven jobs of one worker, one that gains most from the fast type, and a gang of three."""
    single = {("t4", 1): 1.0, ("a100", 1): 1.5}
    fast = {("t4", 1): 1.0, ("a100", 1): 9.0}
    gang = {("t4", 3): 1.0}
    profile = [0] * 6 + [1, 2]
    ran = served_by_turns(stretching(single, fast, gang), profile, [3, 1], 60, Goodput(power=power))
    waits = [np.diff(np.flatnonzero(np.r_[True, column, True])).max() for column in ran.T]
    first = ran.argmax(axis=0)
    assert max(first) <= 30
    assert max(waits) <= 40
    assert (ran.sum(axis=0) >= 4).all()


def test_among_equal_jobs_those_that_run_stay_and_then_those_that_had_least_run():
    table = stretching({("t4", 1): 1.0, ("a100", 1): 2.0})

    def among(**figures):
        figures = {"age_s": 100.0, **figures}
        return chosen(Goodput().allocate(make_problem(table, profile=[0] * 4, **figures)))

    assert among(capacity=[1, 1]) == [1, 0, -1, -1]
    assert among(capacity=[1, 1], held=[-1, -1, 1, 0]) == [-1, -1, 1, 0]
    assert among(capacity=[1, 1], held=[-1, -1, 1, 1]) == [-1, -1, 1, 0]
    had = {"attained_worker_s": [900.0, 700.0, 500.0, 300.0]}  # all of their lives, and more
    assert among(capacity=[1, 1], **had) == [-1, -1, 0, 1]
    assert among(capacity=[1, 1], held=[0, -1, -1, -1], **had) == [0, -1, -1, 1]
    assert among(capacity=[0, 1], age_s=[100.0, 500.0, 100.0, 100.0]) == [-1, 1, -1, -1]


def test_a_job_stays_as_long_as_restarts_would_cost_it_more_than_it_gains():
    row = {("t4", n): n**0.9 for n in (1, 2)}
    table = stretching(row, types=("t4",))

    def count(restarts):
        figures = {"held": 0, "age_s": 300.0, "restart_s": 60.0, "restarts": restarts}
        return chosen(Goodput().allocate(make_problem(table, capacity=[2], **figures)))

    assert count(0) == [1]  # 2^0.9 * 300 / 360 > 1
    assert count(2) == [0]  # 2^0.9 * 180 / 360 < 1
    fresh = make_problem(table, capacity=[2], held=0, age_s=30.0, restart_s=60.0, restarts=9)
    assert chosen(Goodput().allocate(fresh)) == [1]


def test_above_zero_the_sum_of_gains_is_largest():
    well = {("t4", n): float(n) for n in (1, 4)}
    badly = {("t4", n): n**0.5 for n in (1, 4)}
    problem = make_problem(stretching(well, badly, types=("t4",)), capacity=[5])
    assert chosen(Goodput(power=1.0).allocate(problem)) == [1, 0]


def test_nothing_is_said_of_jobs_that_cannot_run():
    problem = make_problem(
        stretching({("t4", 4): 1.0}, {("t4", 1): 1.0}, types=("t4",)), capacity=[2]
    )
    for relative_to in ("least", "fair_share"):
        answer = Goodput(relative_to=relative_to).allocate(problem)
        assert chosen(answer) == [-1, 0]
        assert len(answer.warnings) == 1
    nobody = make_problem(stretching({("t4", 4): 1.0}, types=("t4",)), capacity=[2])
    assert chosen(Goodput().allocate(nobody)) == [-1]


def test_it_does_not_know_how_long_jobs_take():
    row = {("t4", n): float(n) for n in (1, 2)}
    table = stretching(row, types=("t4",))
    one, other = (
        Goodput().allocate(make_problem(table, profile=[0, 0, 0], capacity=[4], remaining_steps=r))
        for r in ([1.0, 1e6, 10.0], [1e6, 1.0, 1e6])
    )
    assert np.array_equal(one.x, other.x)
    assert not one.may_use_remaining_work


def test_parts_of_a_problem_know_the_restarts_of_their_jobs():
    row = {("t4", n): n**0.9 for n in (1, 2)}
    problem = make_problem(
        stretching(row, types=("t4",)),
        profile=[0, 0],
        capacity=[4],
        held=0,
        age_s=300.0,
        restart_s=60.0,
        restarts=[0, 2],
    )
    policy = Partitioned.from_text({"policy": "goodput", "k": "2"})
    assert sorted(chosen(policy.allocate(problem))) == [0, 1]


def test_a_power_of_zero_is_refused():
    with pytest.raises(ParameterError, match=r"'power' has the value 0\.0"):
        make_policy("goodput", {"power": "0"})
