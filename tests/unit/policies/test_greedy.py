"""The greedy filler and the policies that only rank jobs, against hand computations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.built_in.gittins import gittins_index
from policies.greedy import offers_of, serve_in_order
from policies.registry import make_policy
from policies.testing import make_problem, make_table
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile


def test_each_job_in_order_takes_its_fastest_workers_with_room() -> None:
    table = make_table([[10, 4, 2]])
    problem = make_problem(table, capacity=[1, 1, 1], profile=[0, 0, 0, 0])
    answer = make_policy("fifo").allocate(problem)
    assert answer.x.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert answer.rank is not None
    assert answer.rank.tolist() == [0, 1, 2, 3]


def test_a_running_job_moves_only_when_the_restart_pays() -> None:
    # 100 steps: 50 s on its workers, 10 s + restart on the faster ones.
    table = make_table([[10, 2]])
    for restart_s, moves in ((30.0, True), (50.0, False)):
        problem = make_problem(
            table, capacity=[1, 1], remaining_steps=100.0, held=1, restart_s=restart_s
        )
        answer = make_policy("shortest_job_first").allocate(problem)
        assert answer.x[0].tolist() == ([1.0, 0.0] if moves else [0.0, 1.0])


@pytest.mark.parametrize("name", ["fifo", "tiresias"])
@given(seed=st.integers(0, 10**9))
def test_who_may_not_know_lengths_answers_the_same_whatever_they_are(name, seed) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    table = make_table(rng.choice([1.0, 2.0, 5.0, 9.0], size=(n, 3)))
    done, held = rng.uniform(0, 500, size=n), rng.integers(-1, 3, size=n)
    answers = []
    for _ in range(2):
        left = rng.uniform(1, 1000, size=n)
        problem = make_problem(table, capacity=[2, 1, 1], held=held, restart_s=30.0)
        problem = replace(problem, remaining_steps=left, total_steps=done + left)
        answers.append(make_policy(name).allocate(problem))
    assert answers[0].x.tolist() == answers[1].x.tolist()
    assert not answers[0].may_use_remaining_work


def test_jobs_behind_a_gang_without_room_run_unless_backfilling_is_off() -> None:
    table = make_table([[5], [5], [5]], scale_factor=[2, 4, 1])
    problem = make_problem(table, capacity=[4], profile=[0, 1, 2])
    answer = make_policy("fifo").allocate(problem)
    assert answer.x[:, 0].tolist() == [1, 0, 1]
    strict = make_policy("fifo", {"backfill": "false"}).allocate(problem)
    assert strict.x[:, 0].tolist() == [1, 0, 0]


def test_a_gang_takes_precedence_over_the_jobs_that_were_let_past_it() -> None:
    table = make_table([[5], [5]], scale_factor=[4, 1])
    problem = make_problem(table, capacity=[4], profile=[0, 1])
    assert make_policy("fifo").allocate(problem).x[:, 0].tolist() == [1, 0]


def test_a_job_that_nothing_can_run_waits_and_stops_nobody() -> None:
    table = make_table([[5], [5]], scale_factor=[8, 1])
    problem = make_problem(table, capacity=[4], profile=[0, 1])
    assert make_policy("fifo").allocate(problem).x[:, 0].tolist() == [0, 1]


def test_waiting_jobs_join_the_host_with_which_they_do_most_together() -> None:
    # The guest (profile 2) gains 1.3 with profile 1 and 1.1 with profile 0.
    shared = {(0, 2, 0): (6.0, 5.0), (1, 2, 0): (7.0, 6.0), (0, 1, 0): (4.0, 4.0)}
    table = make_table([[10], [10], [10]], shared=shared)
    problem = make_problem(table, capacity=[2], profile=[0, 1, 2])
    answer = make_policy("fifo").allocate(problem)
    assert answer.x[:, 0].tolist() == [1, 0, 0]
    assert answer.pair_jobs.tolist() == [[1, 2]]
    assert answer.effective_throughput(problem).tolist() == [10, 7, 6]
    assert answer.usage(problem).tolist() == [2]


def test_members_of_a_pair_stand_in_the_order_of_their_profiles() -> None:
    table = make_table([[10], [10]], shared={(0, 1, 0): (8.0, 7.0)})
    problem = make_problem(table, capacity=[1], profile=[1, 0])
    answer = make_policy("fifo").allocate(problem)
    assert answer.pair_jobs.tolist() == [[1, 0]]
    assert answer.effective_throughput(problem).tolist() == [7, 8]


def test_pairs_that_do_no_more_than_taking_turns_are_not_made() -> None:
    table = make_table([[10], [10]], shared={(0, 1, 0): (5.0, 5.0), (0, 0, 0): (4.0, 4.0)})
    problem = make_problem(table, capacity=[1], profile=[0, 1])
    assert len(make_policy("fifo").allocate(problem).pair_x) == 0
    assert len(offers_of(table).row) == 0


def test_a_host_takes_one_guest_and_the_last_of_equal_hosts_is_joined_first() -> None:
    table = make_table([[10]], shared={(0, 0, 0): (8.0, 8.0)})
    problem = make_problem(table, capacity=[2], profile=[0] * 5)
    answer = make_policy("fifo").allocate(problem)
    assert answer.pair_jobs.tolist() == [[1, 2], [0, 3]]
    assert answer.effective_throughput(problem).tolist() == [8, 8, 8, 8, 0]


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), pairs=st.booleans())
def test_the_filler_agrees_with_a_plain_loop(problem_of, seed, pairs) -> None:
    problem = problem_of(seed, jobs=9, gangs=True, pairs=pairs)
    order = np.random.default_rng(seed).permutation(problem.jobs)
    answer = serve_in_order(problem, order)
    left = problem.capacity.copy()
    running = {}
    for i in order:
        options = [
            (-problem.throughput[i, j], j)
            for j in range(problem.throughput.shape[1])
            if problem.throughput[i, j] > 0 and (problem.demand[i, j] <= left).all()
        ]
        if options:
            running[i] = min(options)[1]
            left -= problem.demand[i, running[i]]
    hosts = set(answer.pair_jobs.ravel()) & set(running)
    assert len(hosts) == len(answer.pair_x)
    for i in range(problem.jobs):
        alone = i in running and i not in hosts
        assert answer.x[i].sum() == (1.0 if alone else 0.0)
        if alone:
            assert answer.x[i, running[i]] == 1.0
    assert (answer.usage(problem) <= problem.capacity).all()
    assert (answer.time_fraction() <= 1).all()


def test_the_shortest_remaining_job_goes_first_on_its_fastest_workers() -> None:
    table = make_table([[10, 1], [2, 1]])  # to go: 30 s, 25 s, 40 s
    problem = make_problem(
        table, capacity=[1, 0], profile=[0, 1, 0], remaining_steps=[300, 50, 400]
    )
    answer = make_policy("shortest_job_first").allocate(problem)
    assert answer.rank is not None
    assert answer.rank.tolist() == [1, 0, 2]
    assert answer.x[:, 0].tolist() == [0, 1, 0]


def test_weights_and_gangs_change_what_counts_as_short() -> None:
    table = make_table([[10], [10]], scale_factor=[1, 4])
    problem = make_problem(table, capacity=[4], remaining_steps=[300, 100], weight=[4.0, 1.0])
    # 30 s / 4 against 10 s; with gang_power 1 the second counts 40 s.
    ranks = {
        power: make_policy("shortest_job_first", {"gang_power": power}).allocate(problem).rank
        for power in ("0", "1")
    }
    assert ranks["0"].tolist() == [0, 1]
    lighter = make_problem(table, capacity=[4], remaining_steps=[300, 100])
    assert make_policy("shortest_job_first").allocate(lighter).rank.tolist() == [1, 0]
    gang = make_policy("shortest_job_first", {"gang_power": "1"}).allocate(lighter)
    assert gang.rank.tolist() == [0, 1]


def test_tiresias_serves_low_queues_first_and_each_queue_in_order_of_arrival() -> None:
    table = make_table([[1.0]])
    problem = make_problem(
        table,
        capacity=[1],
        profile=[0] * 5,
        attained_worker_s=[4000, 50000, 10, 3599, 3600],
        age_s=[4000, 99999, 10, 3599, 999999],
    )
    answer = make_policy("tiresias").allocate(problem)
    assert answer.rank.tolist() == [2, 4, 0, 1, 3]
    # The last job ran for an hour and waited for 276: it goes back to the first queue.
    promoted = make_policy("tiresias", {"promote": "8"}).allocate(problem)
    assert promoted.rank.tolist() == [3, 4, 0, 1, 2]


def test_gittins_index_by_hand() -> None:
    # Services 1 or 10, equally likely. New: max(1/2 / 1, 1 / 5.5) = 1/2; at 1: 1 / 9; at 10: none.
    index = gittins_index(np.array([0.0, 1.0, 4.0, 10.0]), np.array([1.0, 10.0]))
    assert index.tolist() == pytest.approx([1 / 2, 1 / 9, 1 / 6, 0.0])


def test_gittins_index_maximises_over_every_span() -> None:
    rng = np.random.default_rng(3)
    sample = np.sort(rng.lognormal(0, 1, 30))
    for attained in (0.0, 0.5, 2.0):
        alive = sample[sample > attained] - attained
        spans = [
            (alive <= span).mean() / np.minimum(alive, span).mean() for span in alive if len(alive)
        ]
        assert gittins_index(np.array([attained]), sample)[0] == pytest.approx(max(spans))


def test_gittins_prefers_jobs_that_are_likely_to_be_short() -> None:
    table = make_table([[1.0]])
    problem = make_problem(
        table, capacity=[1], profile=[0, 0, 0], attained_worker_s=[20.0, 0.0, 105.0]
    )
    policy = make_policy("gittins", {"service_worker_s": "10,10,10,110", "quantum_worker_s": "1"})
    # New: 3/4 chance within 10. At 20: 90 to go. At 105: 5 to go.
    assert policy.allocate(problem).rank.tolist() == [2, 1, 0]
    everyone = make_policy("gittins").allocate(
        make_problem(table, capacity=[2], profile=[0] * 80, remaining_steps=np.arange(1.0, 81.0))
    )
    assert sorted(everyone.rank) == list(range(80))


def test_gittins_learns_from_completed_jobs() -> None:
    table = make_table([[1.0]])
    problem = make_problem(
        table, capacity=[1], profile=[0, 0], attained_worker_s=[95_000.0, 20_000.0]
    )
    policy = make_policy("gittins")
    # No job has completed: the one with less time goes first.
    assert policy.allocate(problem).rank.tolist() == [1, 0]
    learned = replace(problem, completed_worker_s=np.full(100, 100_000.0))
    assert policy.allocate(learned).rank.tolist() == [0, 1]  # nearly done, as all were


@pytest.mark.parametrize("policy", ["fifo", "tiresias", "gittins"])
@given(seed=st.integers(0, 10**9), pairs=st.booleans())
@settings(max_examples=60, deadline=None)
def test_lengths_that_are_scrambled_change_nothing(policy, seed, pairs) -> None:
    rng = np.random.default_rng(seed)
    types, jobs = int(rng.integers(1, 4)), int(rng.integers(2, 25))
    rates = rng.uniform(0.5, 8.0, size=(4, types)).round(2)
    shared = {(0, 1, 0): (0.7 * rates[0, 0], 0.7 * rates[1, 0])} if pairs else None
    table = make_table(rates.tolist(), scale_factor=[1, 1, 2, 4], shared=shared)
    done = rng.uniform(0.0, 1e4, size=jobs) * rng.integers(0, 2, size=jobs)
    asked = {
        "capacity": rng.integers(1, 9, size=types).tolist(),
        "profile": rng.integers(0, 4, size=jobs).tolist(),
        "attained_worker_s": rng.uniform(0.0, 1e5, size=jobs),
        "restart_s": rng.uniform(0.0, 60.0, size=jobs),
    }
    answers = []
    for _ in range(3):
        left = rng.lognormal(8.0, 3.0, size=jobs)
        problem = make_problem(table, remaining_steps=left, total_steps=done + left, **asked)
        completed = np.geomspace(10.0, 1e6, 40)
        answers.append(make_policy(policy).allocate(replace(problem, completed_worker_s=completed)))
    for answer in answers[1:]:
        assert np.array_equal(answer.x, answers[0].x)
        assert np.array_equal(answer.pair_jobs, answers[0].pair_jobs)
        assert np.array_equal(answer.rank, answers[0].rank)


def test_without_backfilling_a_gang_that_nothing_can_run_holds_up_nobody() -> None:
    table = make_table([[5], [5]], scale_factor=[8, 1])
    problem = make_problem(table, capacity=[4], profile=[0, 1])
    strict = make_policy("fifo", {"backfill": "false"}).allocate(problem)
    assert strict.x[:, 0].tolist() == [0, 1]


def test_without_backfilling_nobody_is_let_past_by_sharing_either() -> None:
    # The gang finds no room and no partner; the last job could join the first.
    shared = {(0, 2, 0): (4.0, 4.0)}
    table = make_table([[5], [5], [5]], scale_factor=[1, 2, 1], shared=shared)
    problem = make_problem(table, capacity=[1], profile=[0, 2])
    assert len(make_policy("fifo").allocate(problem).pair_x) == 1
    crowded = make_problem(table, capacity=[2], profile=[0, 1, 2])
    strict = make_policy("fifo", {"backfill": "false"}).allocate(crowded)
    assert strict.x[:, 0].tolist() == [1, 0, 0]
    assert len(strict.pair_x) == 0
    alone = make_policy("fifo", {"backfill": "false"}).allocate(problem)
    assert len(alone.pair_x) == 1


def test_only_without_backfilling_is_idling_meant() -> None:
    problem = make_problem(make_table([[5], [5]], scale_factor=[4, 1]), capacity=[4])
    assert make_policy("fifo").allocate(problem).no_backfill is None
    strict = make_policy("fifo", {"backfill": "false"}).allocate(problem)
    assert strict.no_backfill.tolist() == [True, True]


def test_without_backfilling_a_job_holds_back_only_the_worker_types_that_it_can_use() -> None:
    # The second job needs two workers of the first type, of which one is left.
    table = make_table([[5, 0], [5, 0], [1, 2], [9, 1]], scale_factor=[1, 2, 1, 1])
    problem = make_problem(table, capacity=[2, 1])
    strict = make_policy("fifo", {"backfill": "false"}).allocate(problem)
    assert strict.x.tolist() == [[1, 0], [0, 0], [0, 1], [0, 0]]
    # It can never have as many of the second type, so that it holds none of them back.
    wide = make_table([[5, 0], [5, 5], [1, 2]], scale_factor=[1, 2, 1])
    strict = make_policy("fifo", {"backfill": "false"}).allocate(
        make_problem(wide, capacity=[2, 1])
    )
    assert strict.x.tolist() == [[1, 0], [0, 0], [0, 1]]


def test_without_backfilling_jobs_share_workers_that_no_waiting_job_can_use() -> None:
    shared = {(0, 3, 0): (4.0, 4.0), (2, 3, 1): (4.0, 4.0)}
    table = make_table([[5, 0], [5, 0], [0, 5], [5, 5]], scale_factor=[1, 2, 1, 1], shared=shared)
    problem = make_problem(table, capacity=[2, 1])
    strict = make_policy("fifo", {"backfill": "false"}).allocate(problem)
    assert strict.pair_jobs.tolist() == [[2, 3]]


def elastic_table(*profiles: dict[int, float]) -> ConfigurationTable:
    """Lay out profiles on one worker type, each with its steps/s by worker count."""
    return ConfigurationTable.build(
        ("v",),
        tuple(
            Profile(
                job_type=f"profile-{u}",
                scale_factor=min(rates),
                configurations=tuple(
                    Configuration(demand=(n,), throughput=rate) for n, rate in rates.items()
                ),
            )
            for u, rates in enumerate(profiles)
        ),
    )


POOR = {1: 1.0, 4: 1.3}
RANKINGS = ["fifo", "shortest_job_first", "allox", "tiresias", "gittins"]


@pytest.mark.parametrize("name", RANKINGS)
def test_elastic_jobs_take_no_more_workers_than_they_use_well_while_others_wait(name) -> None:
    problem = make_problem(elastic_table(POOR), capacity=[4], profile=[0] * 4, round_length_s=360.0)
    assert make_policy(name).allocate(problem).x.tolist() == [[1, 0]] * 4


@pytest.mark.parametrize("name", RANKINGS)
def test_workers_that_no_waiting_job_can_use_go_to_running_jobs_in_order(name) -> None:
    problem = make_problem(elastic_table(POOR), capacity=[5], profile=[0, 0], round_length_s=360.0)
    assert make_policy(name).allocate(problem).x.tolist() == [[0, 1], [1, 0]]


def test_a_job_without_room_at_an_efficient_count_starts_at_another_one() -> None:
    table = elastic_table({1: 0.5, 4: 4.0}, {1: 1.0})
    figures = {"profile": [0, 0, 1], "round_length_s": 360.0}
    problem = make_problem(table, capacity=[6], **figures)
    # The second job takes the last worker after the third, which uses one well.
    assert make_policy("fifo").allocate(problem).x.tolist() == [[0, 1], [1, 0], [1, 0]]
    crowded = make_problem(table, capacity=[5], **figures)
    assert make_policy("fifo").allocate(crowded).x.tolist() == [[0, 1], [0, 0], [1, 0]]
    strict = make_policy("fifo", {"backfill": "false"}).allocate(crowded)
    assert strict.x.tolist() == [[0, 1], [1, 0], [0, 0]]


def test_a_job_keeps_a_poor_count_if_it_ends_before_the_restart_pays() -> None:
    # At 4 workers it takes 40 or 4,000 worker-seconds more, at 1 it takes 110 or 1,400.
    for steps, keeps in ((13.0, True), (1300.0, False)):
        problem = make_problem(
            elastic_table(POOR),
            capacity=[4],
            profile=[0, 0],
            remaining_steps=[steps, 5000.0],
            held=[1, -1],
            restart_s=100.0,
        )
        x = make_policy("shortest_job_first").allocate(problem).x.tolist()
        assert x == ([[0, 1], [0, 0]] if keeps else [[1, 0], [1, 0]])


def test_a_job_grows_only_if_the_restart_pays() -> None:
    # On 4 workers it ends 23 s earlier.
    for restart_s, grows in ((20.0, True), (30.0, False)):
        problem = make_problem(
            elastic_table(POOR),
            capacity=[4],
            remaining_steps=100.0,
            held=0,
            restart_s=restart_s,
        )
        x = make_policy("shortest_job_first").allocate(problem).x.tolist()
        assert x == ([[0, 1]] if grows else [[1, 0]])


def test_an_elastic_job_is_as_large_as_the_workers_that_it_uses_well() -> None:
    # 60 s on 8 workers against 100 s on one; 100 s of service on 8 workers, not 800 on one.
    table = elastic_table({1: 1.0, 8: 8.0}, {1: 1.0})
    problem = make_problem(table, capacity=[8], remaining_steps=[480.0, 100.0])
    by_service = make_policy("shortest_job_first", {"gang_power": "1"})
    assert by_service.allocate(problem).rank.tolist() == [1, 0]
    waited = make_problem(
        table, capacity=[8], attained_worker_s=[80000.0, 0.0], age_s=[50000.0, 0.0]
    )
    assert make_policy("tiresias").allocate(waited).rank.tolist() == [1, 0]
    promoted = make_policy("tiresias", {"promote": "2"})
    assert promoted.allocate(waited).rank.tolist() == [0, 1]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), name=st.sampled_from(RANKINGS))
def test_no_elastic_job_waits_beside_workers_that_it_could_use(seed, name) -> None:
    rng = np.random.default_rng(seed)
    table = elastic_table(*(
        {int(n): float(n * rng.uniform(0.2, 1.0)) for n in sorted({1, *rng.integers(2, 9, 2)})}
        if rng.random() < 0.7
        else {int(rng.integers(1, 6)): 1.0}
        for _ in range(4)
    ))  # fmt: skip
    n = int(rng.integers(1, 9))
    problem = make_problem(
        table,
        capacity=[int(rng.integers(1, 20))],
        profile=rng.integers(0, 4, n).tolist(),
        remaining_steps=rng.uniform(10, 5000, n),
        held=rng.integers(-1, 1, n),
        restart_s=rng.choice([0.0, 60.0, 600.0], n),
        round_length_s=360.0,
    )
    answer = make_policy(name).allocate(problem)
    left = problem.capacity - answer.usage(problem)
    assert (left >= 0).all()
    waits = answer.x.sum(axis=1) == 0
    could = (problem.throughput > 0) & (problem.demand <= left).all(axis=2)
    assert not could[waits].any()


def test_whether_lengths_are_known_has_its_old_name_for_one_release_with_a_warning():
    problem = make_problem(make_table([(2.0,)]), capacity=[1], profile=[0])
    with pytest.warns(DeprecationWarning, match="now called may_use_remaining_work"):
        assert not serve_in_order(problem, np.array([0]), by_lengths=False).may_use_remaining_work
