"""Every policy on jobs of every shape: answers are feasible, and no other is better.

Programs are written again from the policies' docstrings, job by job, for scipy. Its prices prove
what no allocation can beat; the answers reach that but for a millionth. Policies that state no
program, parts of a problem and the weights of least_remaining_work have tests of their own.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from leasehold_testing.quotas import held_of_quotas
from policies.built_in.goodput import LEAST_LEFT
from policies.registry import BUILT_IN, make_policy
from policies.shares import equal_share_throughput, isolated_throughput

#: Every built-in policy, and parameters that make it another program.
VARIANTS = [
    *((name, {}) for name in sorted(BUILT_IN)),
    *(("max_throughput", {"normaliser": word}) for word in ("equal_share", "best")),
    *(("alpha_fairness", {"alpha": alpha}) for alpha in ("0", "0.5", "5")),
    ("min_cost", {"normaliser": "none"}),
    ("min_cost", {"deadlines": "no"}),
    ("least_remaining_work", {"whole": "no"}),
    ("goodput", {"relative_to": "fair_share", "power": "-1"}),
]
#: Draws, of which the odd ones have wide figures: a few always, many in the long run.
DRAWS, MANY = (*range(24), 124), range(24, 400)
draws = pytest.mark.parametrize("draws", [DRAWS, pytest.param(MANY, marks=pytest.mark.long)])
#: By how much, relatively, an answer may be worse than what no other can beat.
GAP = 1e-6


@pytest.fixture(params=[DRAWS, pytest.param(MANY, marks=pytest.mark.long)], ids=["few", "many"])
def drawn(request, any_problem_of, reference_of):
    """Return seed, problem and reference of each draw in which something can run."""
    made = []
    for seed in request.param:
        problem = any_problem_of(seed, wide=seed % 2 == 1)
        reference = reference_of(problem)
        if reference.able.any():
            made.append((seed, problem, reference))
    return made


def answered(problem, name, **params):
    """Return an answer of a solver that proves it, and the steps/s of each job."""
    answer = make_policy(name, params).allocate(problem)
    assert not any("solved by cvxpy" in warning for warning in answer.warnings)
    return answer, answer.effective_throughput(problem)


def share_of(problem, able):
    """Return (N,) the value of a step/s in units of the equal share, of jobs that can run."""
    return np.where(able, problem.scale_factor / equal_share_throughput(problem), 1.0)


@draws
@pytest.mark.parametrize(("name", "params"), VARIANTS)
def test_answers_keep_within_time_workers_and_quotas(any_problem_of, name, params, draws) -> None:
    for seed in draws:
        problem = any_problem_of(seed, wide=seed % 2 == 1)
        answer = make_policy(name, params).allocate(problem)
        assert (answer.x >= 0).all(), seed
        assert (answer.pair_x >= 0).all(), seed
        assert (answer.x[problem.throughput == 0] == 0).all(), seed
        assert (answer.time_fraction() <= 1 + 1e-9).all(), seed
        assert (answer.usage(problem) <= problem.capacity * (1 + 1e-9)).all(), seed
        if problem.caps is not None:
            held = held_of_quotas(problem, answer)
            assert (held <= problem.caps.limit * (1 + 1e-9)).all(), seed
        profiles = problem.profile[answer.pair_jobs]
        assert (profiles == problem.table.pair_profiles[answer.pair_index]).all(), seed
        assert (answer.pair_jobs[:, 0] != answer.pair_jobs[:, 1]).all(), seed


@pytest.mark.parametrize("name", ["max_min_fairness", "water_filling"])
def test_the_worst_off_is_lifted_as_far_as_can_be(drawn, name) -> None:
    for seed, problem, reference in drawn:
        answer, thr = answered(problem, name)
        share = share_of(problem, reference.able) / problem.weight
        worst = (share * thr)[reference.able].min()
        assert worst >= reference.max_min(share) * (1 - GAP), seed
        assert answer.objective == pytest.approx(worst, rel=GAP), seed


def test_of_what_lifts_the_worst_off_so_far_nothing_does_more_in_all(drawn) -> None:
    for seed, problem, reference in drawn:
        # Under quotas the next worst off is lifted; with wide figures a trace of one job may be all
        # of another.
        if seed % 2 or problem.caps is not None:
            continue
        _, thr = answered(problem, "max_min_fairness")
        share = share_of(problem, reference.able)
        level = reference.max_min(share / problem.weight) * (1 - 1e-9)
        floor = np.where(reference.able, level * problem.weight / share, 0.0)
        best = reference.weighted_sum(share, floor=floor)
        assert (share * thr)[reference.able].sum() >= best * (1 - GAP), seed


def test_nobody_can_be_lifted_but_at_the_cost_of_one_who_has_no_more(drawn) -> None:
    for seed, problem, reference in drawn:
        if seed % 2:
            continue
        _, thr = answered(problem, "water_filling")
        share = share_of(problem, reference.able) / problem.weight
        level = share * thr
        for job in np.flatnonzero(reference.able):
            others = np.minimum(level, level[job]) * (1 - 1e-9)
            others[job] = 0.0
            alone = np.where(np.arange(problem.jobs) == job, share, 0.0)
            most = reference.weighted_sum(alone, floor=others / share)
            assert most <= level[job] * (1 + 1e-4), (seed, job)


def test_the_first_level_of_entities_is_as_high_as_can_be(drawn) -> None:
    for seed, problem, reference in drawn:
        answer, thr = answered(problem, "hierarchical")
        slope = np.zeros(problem.jobs)
        for number, entity in enumerate(problem.entities):
            mine = np.flatnonzero(reference.able & (problem.entity == number))
            mine = mine[:1] if entity.policy == "fifo" else mine
            slope[mine] = entity.weight * problem.weight[mine] / problem.weight[mine].sum()
        rises = slope > 0
        share = share_of(problem, reference.able) / np.where(rises, slope, 1.0)
        worst = (share * thr)[rises].min()
        assert worst >= reference.max_min(share, rises) * (1 - GAP), seed
        assert answer.objective == pytest.approx(worst, rel=GAP), seed


def test_the_last_job_ends_as_early_as_can_be(drawn) -> None:
    for seed, problem, reference in drawn:
        answer, thr = answered(problem, "makespan")
        end = (problem.remaining_steps[reference.able] / thr[reference.able]).max()
        assert end <= (1 + GAP) / reference.max_min(1 / problem.remaining_steps), seed
        assert answer.objective == pytest.approx(end, rel=GAP), seed


def test_the_largest_rho_is_as_small_as_can_be(drawn) -> None:
    for seed, problem, reference in drawn:
        answer, thr = answered(problem, "finish_time_fairness")
        able = reference.able
        promised = problem.total_steps / (problem.weight * isolated_throughput(problem))
        time = problem.age_s[able] + problem.remaining_steps[able] / thr[able]
        rho = (time / promised[able]).max()
        assert answer.objective == pytest.approx(rho, rel=GAP), seed
        # rho is attained when every thr >= remaining / (rho * promised - age).
        left = rho * (1 - 2 * GAP) * promised - problem.age_s
        possible = (left[able] > 0).all()
        assert not possible or reference.max_min(left / problem.remaining_steps) < 1, seed


@pytest.mark.parametrize("normaliser", ["none", "equal_share", "best"])
def test_no_allocation_has_a_larger_sum_of_throughputs(drawn, normaliser) -> None:
    for seed, problem, reference in drawn:
        answer, thr = answered(problem, "max_throughput", normaliser=normaliser)
        fits = (problem.demand <= problem.capacity).all(axis=2)
        fastest = np.where(fits, problem.throughput, 0.0).max(axis=1)
        units = {
            "none": np.ones(problem.jobs),
            "equal_share": equal_share_throughput(problem),
            "best": np.where(fastest > 0, fastest, np.inf),
        }
        worth = np.where(reference.able, problem.weight / units[normaliser], 0.0)
        assert worth @ thr >= reference.weighted_sum(worth) * (1 - GAP), seed
        assert answer.objective == pytest.approx(worth @ thr, rel=GAP), seed


def utility(weight, t, alpha):
    return weight @ np.log(t) if alpha == 1 else weight @ t ** (1 - alpha) / (1 - alpha)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 5.0])
def test_no_allocation_has_a_larger_sum_of_utilities(drawn, alpha) -> None:
    """By the tangent here: the sum is concave, and the largest tangent is a linear program."""
    for seed, problem, reference in drawn:
        name = "proportional_fairness" if alpha == 1 else "alpha_fairness"
        params = {} if alpha == 1 else {"alpha": str(alpha)}
        answer = make_policy(name, params).allocate(problem)
        thr = answer.effective_throughput(problem)
        able, share = reference.able, share_of(problem, reference.able)
        t, weight = (share * thr)[able], problem.weight[able]
        value = utility(weight, t, alpha)
        size = weight.sum() if alpha == 1 else abs(value)
        assert answer.objective == pytest.approx(value, rel=GAP, abs=GAP * size), seed
        # Any tangent will do: that of a job which adds next to nothing is taken a little above.
        at = t
        if alpha < 1:
            at = np.maximum(t, (1e-8 * size / weight) ** (1 / (1 - alpha)))
        slope = np.zeros(problem.jobs)
        slope[able] = weight * at**-alpha * share[able]
        above = utility(weight, at, alpha) - weight @ at ** (1 - alpha)
        gain = reference.weighted_sum(slope) + above - value
        # A conic solver may stop short of utilities that are many powers of ten apart; it says so.
        told = seed % 2 == 1 and any("orders of magnitude" in w for w in answer.warnings)
        # A steep tangent proves less than the answer attains.
        assert gain <= (1e-3 if told else 2e-5) * size, seed


def priced(problem, reference):
    """Return (K,) prices, and (N,) USD per hour for a step/s of each job at its cheapest."""
    price = problem.cost_usd_per_hour
    price = np.maximum(price, 1e-3 * price.max()) if price.any() else np.ones(len(price))
    alone = reference.time.sum(axis=0) == 1
    per_usd = reference.rate[:, alone] / (price @ reference.held[: len(price), alone])
    best = per_usd.max(axis=1, initial=0.0)
    return price, np.where(best > 0, 1 / np.where(best > 0, best, 1.0), 0.0)


def test_no_allocation_saves_more(drawn) -> None:
    for seed, problem, reference in drawn:
        answer, thr = answered(problem, "min_cost", deadlines="no")
        price, step = priced(problem, reference)
        cost = answer.usage(problem) @ price
        spent = price @ reference.held[: len(price)]
        # Nothing is due, so that the best ratio is a column's. It counts a millionth less.
        dear = max(((step @ reference.rate) / spent).max() * (1 - GAP), 1.0)
        saving = step @ thr - dear * cost
        best = reference.weighted_sum(step, price=dear * price)
        assert saving >= best - 2 * GAP * (step @ thr), seed
        # What saves most also does most: together one program, in which that counts a millionth.
        both = step * (1 + 1e-6 * (1 + problem.weight / problem.weight.max()) / 2)
        together = reference.weighted_sum(both, price=dear * price)
        assert both @ thr - dear * cost >= together * (1 - GAP), seed
        assert answer.objective == pytest.approx(step @ thr / cost if cost else 0.0, rel=GAP), seed


def test_no_allocation_does_more_per_dollar(drawn) -> None:
    for seed, problem, reference in drawn:
        answer, thr = answered(problem, "min_cost", deadlines="no", normaliser="none")
        price, _ = priced(problem, reference)
        best = (problem.weight @ reference.rate / (price @ reference.held[: len(price)])).max()
        ratio = problem.weight @ thr / (answer.usage(problem) @ price)
        assert ratio >= best * (1 - 2 * GAP), seed
        assert answer.objective == pytest.approx(ratio, rel=GAP), seed


def test_deadlines_fall_short_by_the_least(drawn) -> None:
    for seed, problem, reference in drawn:
        _, thr = answered(problem, "min_cost")
        due = reference.able & np.isfinite(problem.time_left_s)
        need = np.where(due, problem.remaining_steps / problem.time_left_s, 0.0)
        if not due.any():
            continue
        kept = np.minimum(thr[due] / need[due], 1.0)
        least = 3 * GAP * problem.weight[due].sum()
        assert problem.weight[due] @ kept >= reference.met(need) - least, seed


@pytest.mark.parametrize("waiting", [1.1, 2.0])
def test_no_whole_allocation_has_a_larger_goodput(drawn, waiting) -> None:
    for seed, problem, reference in drawn:
        answer, _ = answered(problem, "goodput", waiting=str(waiting))
        alone = np.flatnonzero(reference.time.sum(axis=0) == 1)
        job = reference.time[:, alone].argmax(axis=0)
        rate = reference.rate[job, alone]
        workers = reference.held[: len(problem.capacity), alone].sum(axis=0)
        slowest, fewest = np.full((2, problem.jobs), np.inf)
        np.minimum.at(slowest, job, rate)
        np.minimum.at(fewest, job, workers)
        costs = (rate / slowest[job] * fewest[job]) ** -0.5
        worst = costs.max(initial=0.0)
        age_s, restart_s = problem.age_s[job], problem.restart_s[job]
        again = (problem.attained_worker_s[job] > 0) & (age_s >= restart_s) & (restart_s > 0)
        left = np.maximum(age_s / np.maximum(age_s + restart_s, 1e-9), LEAST_LEFT)
        costs = costs * np.where(again, left, 1.0) ** -0.5
        lag_s = 2 * max(problem.round_length_s, 1.0)
        ran_s = problem.attained_worker_s / fewest + lag_s
        part = np.minimum(ran_s / (problem.age_s + lag_s), 1.0)
        waits = waiting * np.where(problem.held >= 0, part / 2, part) ** -0.5
        worth = problem.weight[job] * np.maximum(waits[job] * worst - costs, 0.0)
        rows = reference.rows[:, alone]
        best = (
            -milp(
                -worth / problem.weight.max(),
                constraints=LinearConstraint(rows, ub=reference.bounds),
                integrality=np.ones(len(alone)),
                bounds=Bounds(0, 1),
                options={"mip_rel_gap": 0.0},
            ).fun
            * problem.weight.max()
        )
        assert answer.objective >= best * (1 - 2e-4), seed
