"""Laws that hold for every problem: feasibility, sharing incentive, efficiency, invariances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.built_in.partitioned import _PER_JOB
from policies.registry import BUILT_IN, make_policy
from policies.shares import equal_share_throughput
from scheduler.domain.problem import Entity

SEEDS = st.integers(0, 10**6)
FAIR = ("max_min_fairness", "water_filling", "finish_time_fairness", "proportional_fairness")
#: Policies with an optimum of a concave objective as answer.
PROGRAMS = (*FAIR, "makespan", "max_throughput", "alpha_fairness")


def permuted(problem, order):
    return replace(problem, **{name: getattr(problem, name)[order] for name in _PER_JOB})


def scaled(problem, factor):
    """Measure steps in another unit."""
    table = problem.table
    return replace(
        problem,
        table=replace(
            table,
            throughput=table.throughput * factor,
            pair_throughput=table.pair_throughput * factor,
        ),
        remaining_steps=problem.remaining_steps * factor,
        total_steps=problem.total_steps * factor,
    )


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@settings(max_examples=12)
@given(seed=SEEDS, gangs=st.booleans(), pairs=st.booleans())
def test_every_answer_keeps_within_jobs_time_and_workers(
    problem_of, name, seed, gangs, pairs
) -> None:
    entities = (Entity(name="a", weight=2.0), Entity(name="b", policy="fifo"))
    problem = problem_of(
        seed,
        gangs=gangs,
        pairs=pairs,
        entity=np.random.default_rng(seed).integers(0, 2, 7),
        entities=entities,
        time_left_s=np.random.default_rng(seed).choice([np.inf, 3000.0], 7),
    )
    answer = make_policy(name).allocate(problem)
    assert (answer.x >= 0).all()
    assert (answer.pair_x >= 0).all()
    assert (answer.time_fraction() <= 1 + 1e-9).all()
    assert (answer.usage(problem) <= problem.capacity * (1 + 1e-9)).all()
    assert (answer.x[problem.throughput == 0] == 0).all()
    profiles = problem.profile[answer.pair_jobs]
    assert (profiles == problem.table.pair_profiles[answer.pair_index]).all()
    assert (answer.pair_jobs[:, 0] != answer.pair_jobs[:, 1]).all()


@pytest.mark.parametrize("name", ["max_min_fairness", "water_filling"])
@settings(max_examples=25)
@given(seed=SEEDS, pairs=st.booleans())
def test_nobody_does_worse_than_on_an_equal_share(problem_of, name, seed, pairs) -> None:
    problem = problem_of(seed, pairs=pairs, weight=1.0)
    answer = make_policy(name).allocate(problem)
    equal = equal_share_throughput(problem)
    assert (answer.effective_throughput(problem) >= equal * (1 - 1e-6)).all()


@pytest.mark.parametrize("name", [*FAIR, "max_throughput"])
@settings(max_examples=10)
@given(seed=SEEDS, pairs=st.booleans())
def test_nobody_can_get_more_without_another_getting_less(
    problem_of, reference_of, name, seed, pairs
) -> None:
    from scipy.optimize import linprog

    problem = problem_of(seed, jobs=5, pairs=pairs)
    thr = make_policy(name).allocate(problem).effective_throughput(problem)
    reference = reference_of(problem)
    # Maximise the sum of relative gains among allocations in which no job loses.
    unit = np.where(thr > 1e-6, thr, reference.rate.max(axis=1))
    answer = linprog(
        -(reference.rate / unit[:, None]).sum(axis=0),
        A_ub=np.vstack([-reference.rate, reference.rows]),
        b_ub=np.concatenate([-thr * (1 - 1e-7), reference.bounds]),
    )
    assert answer.status == 0
    assert -answer.fun <= (thr / unit).sum() * (1 + 1e-4)


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=8)
@given(seed=SEEDS, pairs=st.booleans())
def test_the_order_of_the_jobs_does_not_change_the_value(problem_of, name, seed, pairs) -> None:
    problem = problem_of(seed, pairs=pairs)
    order = np.random.default_rng(seed + 1).permutation(problem.jobs)
    policy = make_policy(name)
    first = policy.allocate(problem).objective
    second = policy.allocate(permuted(problem, order)).objective
    assert second == pytest.approx(first, rel=2e-6)


@pytest.mark.parametrize("name", [*FAIR, "makespan"])
@settings(max_examples=8)
@given(seed=SEEDS, factor=st.sampled_from([1e-3, 50.0, 1e4]))
def test_the_unit_of_a_step_does_not_matter(problem_of, name, seed, factor) -> None:
    problem = problem_of(seed)
    policy = make_policy(name)
    first = policy.allocate(problem).objective
    second = policy.allocate(scaled(problem, factor)).objective
    assert second == pytest.approx(first, rel=2e-6)


@pytest.mark.parametrize("name", ["proportional_fairness", "alpha_fairness", "max_throughput"])
@settings(max_examples=10)
@given(seed=SEEDS, more=st.sampled_from([1.5, 4.0]))
def test_more_weight_never_gives_less(problem_of, name, seed, more) -> None:
    problem = problem_of(seed, jobs=5)
    weight = problem.weight.copy()
    weight[2] *= more
    policy = make_policy(name)
    before = policy.allocate(problem).effective_throughput(problem)[2]
    heavier = replace(problem, weight=weight)
    after = policy.allocate(heavier).effective_throughput(heavier)[2]
    assert after >= before - 2e-4 * max(before, 1.0)


@settings(max_examples=15)
@given(seed=SEEDS, more=st.sampled_from([1.5, 4.0]))
def test_more_weight_lifts_a_job_s_guaranteed_throughput_under_max_min(
    problem_of, seed, more
) -> None:
    problem = problem_of(seed, jobs=5)
    weight = problem.weight.copy()
    weight[2] *= more
    policy = make_policy("max_min_fairness")
    light = policy.allocate(problem).objective * problem.weight[2]
    heavy = policy.allocate(replace(problem, weight=weight)).objective * weight[2]
    assert heavy >= light * (1 - 1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=8)
@given(seed=SEEDS)
def test_pairs_never_lower_the_value(problem_of, name, seed) -> None:
    shared = problem_of(seed, pairs=True)
    table = shared.table
    plain = replace(
        shared,
        table=replace(
            table,
            pair_profiles=table.pair_profiles[:0],
            pair_demand=table.pair_demand[:0],
            pair_throughput=table.pair_throughput[:0],
        ),
    )
    policy = make_policy(name)
    with_pairs, without = policy.allocate(shared).objective, policy.allocate(plain).objective
    smaller_is_better = name in {"makespan", "finish_time_fairness"}
    gain = without - with_pairs if smaller_is_better else with_pairs - without
    assert gain >= -2e-6 * abs(without)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@settings(max_examples=4)
@given(seed=SEEDS)
def test_a_fresh_policy_gives_the_same_answer_again(problem_of, name, seed) -> None:
    problem = problem_of(seed, gangs=True, pairs=True)
    first, second = (make_policy(name).allocate(problem) for _ in "ab")
    assert first.x.tobytes() == second.x.tobytes()
    assert first.pair_jobs.tolist() == second.pair_jobs.tolist()
    assert first.pair_x.tobytes() == second.pair_x.tobytes()
