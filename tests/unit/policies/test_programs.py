"""The policies that solve programs, against linear programs written out job by job for scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from policies.registry import make_policy, policy_class
from policies.shares import equal_share_throughput, isolated_throughput
from policies.terms import Terms

CASES = [(seed, gangs, pairs) for seed in range(4) for gangs, pairs in ((0, 0), (1, 0), (1, 1))]
PROGRAMS = [
    ("max_min_fairness", {}),
    ("finish_time_fairness", {}),
    ("makespan", {}),
    ("max_throughput", {}),
    ("max_throughput", {"normaliser": "equal_share"}),
    ("max_throughput", {"normaliser": "best"}),
    ("proportional_fairness", {}),
    ("alpha_fairness", {"alpha": "0"}),
    ("alpha_fairness", {"alpha": "0.5"}),
    ("alpha_fairness", {"alpha": "2"}),
]


def feasible(answer, problem) -> bool:
    return bool(
        (answer.usage(problem) <= problem.capacity + 1e-9).all()
        and (answer.time_fraction() <= 1 + 1e-9).all()
        and (answer.x >= 0).all()
        and (answer.pair_x >= 0).all()
    )


@pytest.mark.parametrize(("seed", "gangs", "pairs"), CASES)
def test_max_min_fairness_lifts_the_worst_off_as_far_as_scipy(
    problem_of, reference_of, seed, gangs, pairs
) -> None:
    problem = problem_of(seed, gangs=gangs, pairs=pairs)
    answer = make_policy("max_min_fairness").allocate(problem)
    coefficient = problem.scale_factor / (problem.weight * equal_share_throughput(problem))
    worst = (coefficient * answer.effective_throughput(problem)).min()
    assert feasible(answer, problem)
    assert worst == pytest.approx(reference_of(problem).max_min(coefficient), rel=1e-6)
    assert answer.objective == pytest.approx(worst, rel=1e-6)


@pytest.mark.parametrize(("seed", "gangs", "pairs"), CASES)
def test_makespan_ends_as_early_as_scipy(problem_of, reference_of, seed, gangs, pairs) -> None:
    problem = problem_of(seed, gangs=gangs, pairs=pairs)
    answer = make_policy("makespan").allocate(problem)
    end = (problem.remaining_steps / answer.effective_throughput(problem)).max()
    assert feasible(answer, problem)
    rate = reference_of(problem).max_min(1 / problem.remaining_steps)
    assert end == pytest.approx(1 / rate, rel=1e-6)
    assert answer.objective == pytest.approx(end, rel=1e-6)


@pytest.mark.parametrize(("seed", "gangs", "pairs"), CASES)
def test_finish_time_fairness_attains_the_rho_that_scipy_finds_by_bisection(
    problem_of, reference_of, seed, gangs, pairs
) -> None:
    problem = problem_of(seed, gangs=gangs, pairs=pairs)
    answer = make_policy("finish_time_fairness").allocate(problem)
    promised = problem.total_steps / (problem.weight * isolated_throughput(problem))
    time = problem.age_s + problem.remaining_steps / answer.effective_throughput(problem)
    assert feasible(answer, problem)
    assert answer.objective == pytest.approx((time / promised).max(), rel=1e-6)
    # rho is attained when every thr >= remaining / (rho * promised - age).
    reference = reference_of(problem)
    for rho, attained in ((answer.objective * 1.0001, True), (answer.objective * 0.9999, False)):
        left = rho * promised - problem.age_s
        reached = (left > 0).all() and reference.max_min(left / problem.remaining_steps) >= 1
        assert reached == attained


@pytest.mark.parametrize(("seed", "gangs", "pairs"), CASES)
@pytest.mark.parametrize("normaliser", ["none", "equal_share", "best"])
def test_max_throughput_adds_up_to_what_scipy_finds(  # noqa: PLR0917
    problem_of, reference_of, seed, gangs, pairs, normaliser
) -> None:
    problem = problem_of(seed, gangs=gangs, pairs=pairs)
    answer = make_policy("max_throughput", {"normaliser": normaliser}).allocate(problem)
    fits = (problem.demand <= problem.capacity).all(axis=2)
    divide_by = {
        "none": np.ones(problem.jobs),
        "equal_share": equal_share_throughput(problem),
        "best": np.where(fits, problem.throughput, 0.0).max(axis=1),
    }[normaliser]
    coefficient = problem.weight / divide_by
    best = reference_of(problem).weighted_sum(coefficient)
    assert feasible(answer, problem)
    assert answer.objective == pytest.approx(best, rel=1e-6)
    assert coefficient @ answer.effective_throughput(problem) == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("alpha", ["0", "0.5", "1", "2"])
@pytest.mark.parametrize("seed", range(3))
def test_alpha_fairness_satisfies_the_condition_of_optimality(
    problem_of, reference_of, seed, alpha
) -> None:
    # No feasible direction improves the sum of utilities: at the optimum the linearised
    # objective is maximised by the optimum itself (a linear program for scipy).
    problem = problem_of(seed, gangs=True, pairs=seed == 1)
    answer = make_policy("alpha_fairness", {"alpha": alpha}).allocate(problem)
    share = problem.scale_factor / equal_share_throughput(problem)
    t = share * answer.effective_throughput(problem)
    slope = problem.weight * share * t ** -float(alpha)
    best = reference_of(problem).weighted_sum(slope)
    assert feasible(answer, problem)
    assert slope @ answer.effective_throughput(problem) == pytest.approx(best, rel=2e-5)


def test_proportional_fairness_divides_a_worker_by_weight(problem_of) -> None:
    problem = problem_of(0, jobs=3, types=1, capacity=(1,), weight=[1.0, 2.0, 5.0])
    answer = make_policy("proportional_fairness").allocate(problem)
    assert answer.x[:, 0] == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=1e-5)


def test_large_alpha_comes_near_max_min(problem_of) -> None:
    problem = problem_of(5, weight=1.0, capacity=(1, 1, 1))
    share = problem.scale_factor / equal_share_throughput(problem)
    worst = [
        (
            share
            * make_policy("alpha_fairness", {"alpha": a})
            .allocate(problem)
            .effective_throughput(problem)
        ).min()
        for a in ("0.5", "1", "2", "6")
    ]
    assert worst == sorted(worst)
    best = make_policy("max_min_fairness").allocate(problem).objective
    assert worst[-1] == pytest.approx(best, rel=0.1)


@pytest.mark.parametrize(("name", "params"), PROGRAMS)
@pytest.mark.parametrize("seed", range(4))
def test_the_kernel_agrees_with_the_cvxpy_program(problem_of, name, params, seed) -> None:
    policy = make_policy(name, params)
    problem = problem_of(seed + 10, jobs=9, gangs=seed % 2 == 1, pairs=seed > 1)
    terms = Terms.build(problem, reads=policy.reads, policy=name)
    fast, plain = policy.allocate(problem), policy.allocate_by_cvxpy(terms)
    assert feasible(fast, problem)
    assert feasible(plain, problem)
    assert fast.objective == pytest.approx(plain.objective, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("name", "params"), PROGRAMS)
def test_equal_problems_give_equal_allocations(problem_of, name, params) -> None:
    first, second = (make_policy(name, params).allocate(problem_of(3, pairs=True)) for _ in "ab")
    assert first.x.tolist() == second.x.tolist()
    assert first.pair_x.tolist() == second.pair_x.tolist()


@pytest.mark.parametrize("name", ["finish_time_fairness", "makespan"])
def test_policies_that_read_remaining_steps_say_that_time_changes_their_answer(name) -> None:
    assert policy_class(name).time_dependent


def test_scipy_s_general_solver_finds_no_better_proportional_fairness(problem_of) -> None:
    problem = problem_of(2, jobs=4, types=2)
    answer = make_policy("proportional_fairness").allocate(problem)
    share = problem.scale_factor / equal_share_throughput(problem)
    shape = problem.throughput.shape

    def loss(x):
        t = share * (problem.throughput * x.reshape(shape)).sum(axis=1)
        return -(problem.weight * np.log(np.maximum(t, 1e-12))).sum()

    limits = [
        {"type": "ineq", "fun": lambda x: 1 - x.reshape(shape).sum(axis=1)},
        {
            "type": "ineq",
            "fun": lambda x: (
                problem.capacity - np.einsum("nj,njk->k", x.reshape(shape), problem.demand)
            ),
        },
    ]
    start = np.full(shape, 0.1).ravel()
    found = minimize(loss, start, bounds=[(0, 1)] * len(start), constraints=limits, method="SLSQP")
    assert -found.fun <= answer.objective + 1e-6
