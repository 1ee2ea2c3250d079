"""AlloX, against every schedule of small instances."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from policies.built_in.allox import match
from policies.registry import make_policy
from policies.testing import make_problem, make_table
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile


def least_total_completion(seconds: np.ndarray, capacity: list[int]) -> float:
    """Try every assignment of jobs to workers, each worker's queue shortest first."""
    workers = [k for k, n in enumerate(capacity) for _ in range(n)]
    best = np.inf
    for chosen in product(range(len(workers)), repeat=len(seconds)):
        total = 0.0
        for w, k in enumerate(workers):
            queue = sorted(seconds[m, k] for m, c in enumerate(chosen) if c == w)
            total += np.cumsum(queue).sum()
        best = min(best, total)
    return best


@pytest.mark.parametrize("seed", range(8))
def test_single_worker_jobs_complete_as_early_as_any_schedule_allows(seed) -> None:
    rng = np.random.default_rng(seed)
    capacity = [1, 2] if seed % 2 else [1, 1]
    seconds = rng.uniform(1, 20, (5, 2))
    if seed > 4:
        seconds[0, 0] = seconds[3, 1] = np.inf
    worker_type, place = match(seconds, np.ones((5, 2)), np.array(capacity, dtype=float))
    total = (seconds[np.arange(5), worker_type] * place).sum()
    assert total == pytest.approx(least_total_completion(seconds, capacity))


def test_places_grow_until_every_job_has_one() -> None:
    # All 30 jobs run on the one slow type only, in 30 layers.
    seconds = np.stack([np.full(30, np.inf), np.arange(30, 0, -1.0)], axis=1)
    worker_type, place = match(seconds, np.ones((30, 2)), np.array([9.0, 1.0]))
    assert (worker_type == 1).all()
    assert sorted(place) == list(range(1, 31))
    assert place[29] == 30  # the shortest job is the farthest from the last


def test_the_first_job_of_every_queue_runs_and_ranks_follow_the_places() -> None:
    # One worker: 10 s, 20 s, 5 s; shortest first.
    problem = make_problem(
        make_table([[1.0]]), capacity=[1], profile=[0] * 3, remaining_steps=[10, 20, 5]
    )
    answer = make_policy("allox").allocate(problem)
    assert answer.x[:, 0].tolist() == [0, 0, 1]
    assert answer.rank.tolist() == [1, 2, 0]


def test_a_job_waits_for_the_fast_worker_only_in_its_turn() -> None:
    # Fast 10x: both jobs are best queued there, and the idle slow worker takes the one that waits.
    problem = make_problem(
        make_table([[10.0, 1.0]]), capacity=[1, 1], profile=[0, 0], remaining_steps=[100, 200]
    )
    answer = make_policy("allox").allocate(problem)
    assert answer.x.tolist() == [[1, 0], [0, 1]]


def test_a_running_job_stays_when_leaving_costs_more_than_it_gains() -> None:
    table = make_table([[10.0, 9.0]])
    problem = make_problem(
        table, capacity=[1, 1], profile=[0], remaining_steps=90.0, held=1, restart_s=60.0
    )
    assert make_policy("allox").allocate(problem).x[0].tolist() == [0, 1]


def test_alpha_serves_the_jobs_with_the_least_service_first() -> None:
    problem = make_problem(
        make_table([[1.0]]),
        capacity=[1],
        profile=[0] * 4,
        remaining_steps=[1, 2, 3, 4],
        attained_worker_s=[9, 9, 9, 0],
    )
    answer = make_policy("allox", {"alpha": "0.25"}).allocate(problem)
    assert answer.x[:, 0].tolist() == [0, 0, 0, 1]


def test_order_of_permutations_does_not_change_the_total() -> None:
    rng = np.random.default_rng(0)
    seconds = rng.uniform(1, 9, (4, 2))
    totals = set()
    for order in permutations(range(4)):
        rows = seconds[list(order)]
        kind, place = match(rows, np.ones((4, 2)), np.array([1.0, 1.0]))
        totals.add(round(float((rows[np.arange(4), kind] * place).sum()), 9))
    assert len(totals) == 1


def test_jobs_that_cannot_run_are_left_out() -> None:
    problem = make_problem(make_table([[1.0], [1.0]], scale_factor=[1, 9]), capacity=[2])
    assert make_policy("allox").allocate(problem).x[:, 0].tolist() == [1, 0]
    hopeless = make_problem(make_table([[1.0]], scale_factor=[9]), capacity=[2])
    assert make_policy("allox").allocate(hopeless).x.sum() == 0


def test_a_gang_of_several_types_has_a_place_by_its_length() -> None:
    types = ("v", "k")
    short = Configuration(demand=(1, 1), throughput=10.0)
    long = tuple(Configuration(demand=d, throughput=1.0) for d in ((1, 0), (0, 1)))
    table = ConfigurationTable.build(
        types,
        (
            Profile(job_type="short", scale_factor=2, configurations=(short,)),
            Profile(job_type="long", scale_factor=1, configurations=long),
        ),
    )
    problem = make_problem(table, capacity=[1, 1], profile=[1, 1, 0])
    assert make_policy("allox").allocate(problem).x.tolist() == [[0, 0], [0, 0], [1, 0]]
