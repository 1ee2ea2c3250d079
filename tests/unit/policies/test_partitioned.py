"""POP: parts are alike, feasible together, and near the whole."""

from __future__ import annotations

import numpy as np
import pytest

from policies.built_in.partitioned import split
from policies.registry import make_policy
from policies.testing import make_problem, make_table
from scheduler.errors import ParameterError, UnknownPolicyError


def granular(jobs: int = 240, **figures):
    rng = np.random.default_rng(1)
    rates = rng.uniform(1, 10, (12, 3)).round(2)
    table = make_table(rates.tolist())
    profile = rng.integers(0, 12, jobs)
    return make_problem(table, capacity=[24, 16, 17], profile=profile, **figures)


def test_parts_share_jobs_and_workers_out_evenly() -> None:
    problem = granular()
    parts = split(problem, 4)
    assert sorted(np.concatenate([jobs for jobs, _ in parts])) == list(range(240))
    assert sum(part.capacity for _, part in parts).tolist() == [24, 16, 17]
    assert [part.jobs for _, part in parts] == [60] * 4
    counts = np.array([np.bincount(part.profile, minlength=12) for _, part in parts])
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()
    for jobs, part in parts:
        assert part.job_number.tolist() == problem.job_number[jobs].tolist()
        assert (part.capacity == np.floor(part.capacity)).all()


def test_the_answer_is_feasible_and_near_the_whole_problem_s() -> None:
    problem = granular()
    whole = make_policy("max_throughput").allocate(problem)
    parted = make_policy("partitioned", {"policy": "max_throughput", "k": "4"}).allocate(problem)
    assert (parted.usage(problem) <= problem.capacity + 1e-9).all()
    assert (parted.time_fraction() <= 1 + 1e-9).all()
    total = parted.effective_throughput(problem).sum()
    assert 0.95 * whole.objective <= total <= whole.objective * (1 + 1e-9)
    assert parted.solver.startswith("4 x ")


def test_there_are_no_more_parts_than_the_largest_gang_allows() -> None:
    table = make_table([[1.0, 0.0], [1.0, 1.0]], scale_factor=[4, 1])
    problem = make_problem(table, capacity=[9, 2], profile=[0, 1, 1, 1])
    assert len(split(problem, 4)) == 2
    alone = make_problem(table, capacity=[7, 2], profile=[0, 1, 1, 1])
    assert len(split(alone, 4)) == 1
    answer = make_policy("partitioned").allocate(alone)
    fair = make_policy("max_min_fairness").allocate(alone)
    assert answer.x.tolist() == fair.x.tolist()
    few = make_problem(table, capacity=[9, 9], profile=[1, 1])
    assert len(split(few, 4)) == 2


def test_pairs_and_ranks_are_merged(problem_of) -> None:
    table = make_table([[10.0]], shared={(0, 0, 0): (8.0, 8.0)})
    problem = make_problem(table, capacity=[4], profile=[0] * 10)
    answer = make_policy("partitioned", {"policy": "fifo", "k": "2"}).allocate(problem)
    assert len(answer.pair_x) == 4
    assert sorted(answer.pair_jobs.ravel()) == list(range(8))
    assert answer.effective_throughput(problem).tolist() == [8.0] * 8 + [0.0] * 2
    assert answer.rank.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_parameters_of_the_inner_policy_are_passed_on() -> None:
    policy = make_policy("partitioned", {"policy": "alpha_fairness", "policy.alpha": "3", "k": "2"})
    assert policy.policy == "alpha_fairness"
    assert policy.params == {"alpha": "3"}
    assert not policy.time_dependent
    assert make_policy("partitioned", {"policy": "makespan"}).time_dependent
    listed = make_policy("partitioned", {"policy": "alpha_fairness", "params": "alpha:3"})
    assert listed.params == {"alpha": "3"}


def test_what_is_wrong_with_the_inner_policy_is_said_at_once() -> None:
    with pytest.raises(ParameterError, match="'alpha_fairness': parameter 'alpha' has the value"):
        make_policy("partitioned", {"policy": "alpha_fairness", "policy.alpha": "x"})
    with pytest.raises(UnknownPolicyError, match="no policy is named 'x'"):
        make_policy("partitioned", {"policy": "x"})
    with pytest.raises(ParameterError, match="it must name another policy"):
        make_policy("partitioned", {"policy": "partitioned"})
