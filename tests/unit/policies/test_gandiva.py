"""Gandiva: turns by hand, and what becomes of the pairs that it tries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.kernels.trades import trade
from policies.registry import make_policy
from policies.testing import make_problem, make_table
from scheduler.domain.configuration import (
    Configuration,
    ConfigurationTable,
    PairConfiguration,
    Profile,
)
from scheduler.domain.quota import Caps

PAYING = {(0, 0, 0): (8.0, 8.0)}


def test_without_pairs_jobs_take_turns_on_all_types() -> None:
    problem = make_problem(make_table([[10.0, 5.0]]), capacity=[1, 2], profile=[0] * 6)
    answer = make_policy("gandiva").allocate(problem)
    np.testing.assert_allclose(answer.x, np.tile([1 / 6, 1 / 3], (6, 1)))
    assert answer.usage(problem) == pytest.approx([1, 2])


def test_turns_are_longer_for_weight_and_never_longer_than_the_round() -> None:
    problem = make_problem(
        make_table([[1.0]]), capacity=[2], profile=[0] * 4, weight=[1.0, 1.0, 1.0, 9.0]
    )
    answer = make_policy("gandiva").allocate(problem)
    assert answer.time_fraction() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])


def test_when_everybody_fits_everybody_runs_all_the_time_and_nobody_shares() -> None:
    table = make_table([[10.0]], shared=PAYING)
    problem = make_problem(table, capacity=[4], profile=[0] * 3)
    answer = make_policy("gandiva").allocate(problem)
    assert answer.x[:, 0].tolist() == [1, 1, 1]
    assert len(answer.pair_x) == 0


def test_short_of_workers_jobs_are_packed_and_pairs_are_kept() -> None:
    table = make_table([[10.0]], shared=PAYING)
    policy = make_policy("gandiva")
    first = policy.allocate(make_problem(table, capacity=[2], profile=[0] * 4))
    assert sorted(first.pair_jobs.ravel()) == [0, 1, 2, 3]
    assert first.pair_x.tolist() == [1, 1]
    again = policy.allocate(make_problem(table, capacity=[2], profile=[0] * 6))
    kept = {tuple(sorted(pair)) for pair in first.pair_jobs.tolist()}
    assert kept <= {tuple(sorted(pair)) for pair in again.pair_jobs.tolist()}
    assert again.usage(make_problem(table, capacity=[2], profile=[0] * 6)) == pytest.approx([2])


def test_a_pair_ends_when_a_member_leaves_or_workers_suffice() -> None:
    table = make_table([[10.0]], shared=PAYING)
    policy = make_policy("gandiva")
    policy.allocate(make_problem(table, capacity=[1], profile=[0, 0]))
    left = make_problem(table, capacity=[1], profile=[0, 0], job_number=[1, 2])
    answer = policy.allocate(left)
    assert answer.pair_jobs.tolist() == [[0, 1]]  # job 1 found another partner
    roomy = make_problem(table, capacity=[2], profile=[0, 0], job_number=[1, 2])
    assert len(policy.allocate(roomy).pair_x) == 0


def test_pairs_that_do_not_pay_or_have_unlike_gangs_are_not_kept() -> None:
    table = make_table(
        [[10.0], [10.0], [10.0]], scale_factor=[1, 1, 2], shared={(0, 1, 0): (5.0, 4.0)} | PAYING
    )
    problem = make_problem(table, capacity=[2], profile=[0, 1, 2])
    answer = make_policy("gandiva").allocate(problem)
    assert len(answer.pair_x) == 0
    assert answer.usage(problem) == pytest.approx([2])


def test_trials_are_seeded() -> None:
    table = make_table([[10.0]], shared=PAYING)
    problem = make_problem(table, capacity=[2], profile=[0] * 12)
    pairs = {
        seed: make_policy("gandiva", {"seed": seed}).allocate(problem).pair_jobs.tolist()
        for seed in ("0", "0", "1")
    }
    assert make_policy("gandiva").allocate(problem).pair_jobs.tolist() == pairs["0"]
    assert pairs["0"] != pairs["1"]


@pytest.mark.parametrize("seed", range(6))
def test_answers_keep_within_the_cluster(problem_of, seed) -> None:
    problem = problem_of(seed, jobs=9, gangs=True, pairs=True)
    answer = make_policy("gandiva").allocate(problem)
    assert (answer.usage(problem) <= problem.capacity + 1e-9).all()
    assert (answer.time_fraction() <= 1 + 1e-9).all()
    assert sorted(answer.rank) == list(range(9))
    profiles = problem.profile[answer.pair_jobs]
    assert (profiles == problem.table.pair_profiles[answer.pair_index]).all()


def test_members_are_named_in_the_order_of_their_profiles() -> None:
    table = make_table([[10.0], [10.0]], shared={(0, 1, 0): (9.0, 3.0)})
    problem = make_problem(table, capacity=[1], profile=[1, 0])
    answer = make_policy("gandiva").allocate(problem)
    assert answer.pair_jobs.tolist() == [[1, 0]]
    assert answer.effective_throughput(problem).tolist() == [3.0, 9.0]


def test_jobs_that_cannot_run_take_no_turn() -> None:
    problem = make_problem(make_table([[1.0], [1.0]], scale_factor=[1, 9]), capacity=[2])
    assert make_policy("gandiva").allocate(problem).x[:, 0].tolist() == [1, 0]
    hopeless = make_problem(make_table([[1.0]], scale_factor=[9]), capacity=[2])
    assert make_policy("gandiva").allocate(hopeless).x.sum() == 0


def test_migrations_that_pay_are_kept_and_take_nothing_from_anybody() -> None:
    # The first runs four times as fast on type 0, the second equally fast on both: they trade.
    table = make_table([[4.0, 1.0], [1.0, 1.0]])
    problem = make_problem(table, capacity=[1, 1], profile=[0, 1])
    still = make_policy("gandiva", {"migrations": "0"}).allocate(problem)
    np.testing.assert_allclose(still.x, [[0.5, 0.5], [0.5, 0.5]])
    answer = make_policy("gandiva").allocate(problem)
    np.testing.assert_allclose(answer.x, [[1.0, 0.0], [0.0, 1.0]])


def test_gangs_take_turns_by_worker_seconds() -> None:
    table = make_table([[1.0], [2.0]], scale_factor=[1, 2])
    problem = make_problem(table, capacity=[2], profile=[0, 0, 1])
    answer = make_policy("gandiva").allocate(problem)
    held = answer.x[:, 0] * problem.scale_factor
    np.testing.assert_allclose(held, [2 / 3] * 3)


def table_of(types: int, *profiles: list[tuple[tuple[int, ...], float]], pairs=()):
    made = tuple(
        Profile(
            job_type=f"p{u}",
            scale_factor=sum(ways[0][0]),
            configurations=tuple(Configuration(demand=d, throughput=rate) for d, rate in ways),
        )
        for u, ways in enumerate(profiles)
    )
    return ConfigurationTable.build(tuple("abc"[:types]), made, pairs)


def test_an_elastic_job_runs_at_the_count_that_does_most_per_worker() -> None:
    table = table_of(1, [((1,), 1.0), ((2,), 2.2)])
    alone = make_problem(table, capacity=[2])
    assert make_policy("gandiva").allocate(alone).x.tolist() == [[0.0, 1.0]]
    both = make_problem(table, capacity=[2], profile=[0, 0], weight=[1.0, 3.0])
    np.testing.assert_allclose(make_policy("gandiva").allocate(both).x, [[0, 0.25], [0, 0.75]])


def test_a_gang_of_several_types_leaves_time_on_each_to_others() -> None:
    table = table_of(2, [((1, 1), 1.0)], [((0, 1), 1.0)])
    problem = make_problem(table, capacity=[4, 1])
    np.testing.assert_allclose(make_policy("gandiva").allocate(problem).x, [[0.5], [0.5]])


def test_pairs_at_several_counts_take_one_turn_per_type() -> None:
    pairs = tuple(
        PairConfiguration(profiles=(0, 0), demand=(n,), throughput=(0.9 * n, 0.9 * n))
        for n in (1, 2)
    )
    table = table_of(1, [((1,), 1.0), ((2,), 2.0)], pairs=pairs)
    problem = make_problem(table, capacity=[2], profile=[0] * 4)
    answer = make_policy("gandiva").allocate(problem)
    assert len(answer.pair_x) == 2
    assert answer.usage(problem) == pytest.approx([2])
    assert (answer.time_fraction() <= 1 + 1e-9).all()


def test_no_pair_is_kept_that_a_quota_has_no_room_for() -> None:
    shared = PairConfiguration(profiles=(0, 0), demand=(2,), throughput=(1.9, 1.9))
    table = table_of(1, [((1,), 1.0), ((2,), 2.0)], pairs=(shared,))
    caps = Caps(
        limit=np.array([1.0]),
        counts=np.ones((1, 1), dtype=bool),
        member=np.array([[True], [False]]),
        group=np.array([0, 0, 1, 1]),
    )
    problem = replace(make_problem(table, capacity=[2], profile=[0] * 4), caps=caps)
    answer = make_policy("gandiva").allocate(problem)
    assert (answer.effective_throughput(problem) > 0).all()
    assert sorted(answer.pair_jobs.ravel()) in ([], [2, 3])


def test_a_gang_that_migrates_with_all_its_time_keeps_none_of_it() -> None:
    """A tenth of three workers is (0.1 * 3) / 3 > 0.1 in doubles: the rest was below 0."""
    split = np.array([[0.1, 0.0], [0.0, 0.1]])
    trade(split, np.full((2, 2), 3.0), np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([[0, 1, 0, 1]]))
    assert split.min() == 0.0
    assert split[0, 1] == pytest.approx(0.1)
