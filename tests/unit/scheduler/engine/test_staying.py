"""Of rounds of equal value, the one in which most jobs stay; moves are for certain gains."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

from leasehold_testing.drawn_rounds import rounds
from policies.testing import make_table
from scheduler.domain.allocation import Allocation
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.facts import events as ev
from scheduler.engine.rounds.choose_round import RoundInputs, choose_round
from scheduler.engine.rounds.equivalence import EquivalentConfigurations
from scheduler.engine.rounds.migration import spread_credit
from scheduler.engine.settings import EngineSettings
from scheduler.engine.tables.jobs import NONE
from scheduler.engine.tables.pairs import PairTable

KEEP = {"keep_bonus": 0.5}


def by_noise(problem):
    """Have each job all its time on one type: as throughputs are larger in sum."""
    straight, crossed = np.eye(2), np.eye(2)[::-1]
    t = problem.throughput
    return Allocation.singles(straight if (t * straight).sum() >= (t * crossed).sum() else crossed)


def even(problem):
    return Allocation.singles(np.full_like(problem.throughput, 1.0 / problem.throughput.shape[1]))


def three_tenths(problem):
    """Have each of forty jobs three tenths of its time, as much on each type."""
    return Allocation.singles(np.full_like(problem.throughput, 0.3 / problem.throughput.shape[1]))


def by_turns():
    """Return a policy that has all jobs on one type only, and on another one with each answer."""
    asked = [0]

    def allocate(problem):
        asked[0] += 1
        x = np.zeros_like(problem.throughput)
        x[:, asked[0] % x.shape[1]] = 1.0
        return Allocation.singles(x)

    return allocate


def noisy(rng, spread):
    """Return two job types that are equally fast on both types but for the noise."""
    return make_table(np.exp(rng.normal(0.0, spread, size=(2, 2))), doubt=0.05)


def exchange(start, job, allocate, tables, *, keeps=True, **values):
    """Run two jobs on two workers while the figures change, and return how often each began."""
    shell = start("type-0:1,type-1:1", rates=((1.0, 1.0),) * 2, allocate=allocate, settings=KEEP)
    shell.submit(job("a", **values), profile=0)
    shell.submit(job("b", **values), profile=1)
    for i, table in enumerate(tables, start=1):
        shell.run(until_s=100.0 * i - 10.0)
        shell.tell(ev.ConfigurationsChanged(table=table))
        if not keeps:
            shell.engine.jobs["steps_safe"][:] = 0.0
    return shell.engine.jobs["attempts"].tolist()


@pytest.mark.parametrize("allocate", [by_noise, even])
def test_noise_of_the_figures_moves_nobody_while_nobody_waits(start, job, allocate):
    rng = np.random.default_rng(7)
    tables = [noisy(rng, 0.02) for _ in range(30)]
    assert exchange(start, job, allocate, tables) == [1, 1]


def test_jobs_change_places_once_where_both_gain(start, job):
    crossed = make_table([[0.7, 1.0], [1.0, 0.7]], doubt=0.05)
    straight = make_table([[1.0, 1.1], [1.1, 1.0]], doubt=0.05)
    tables = [straight] * 5 + [crossed] * 20
    assert exchange(start, job, by_noise, tables) == [2, 2]


@pytest.mark.parametrize(("doubt", "moved"), [(0.0, True), (0.01, True), (0.05, False)])
def test_a_gain_within_the_doubt_of_the_figures_moves_nobody(start, job, doubt, moved):
    faster = make_table([[1.0, 1.05], [1.05, 1.0]], doubt=doubt)
    began = exchange(start, job, even, [faster] * 20)
    assert (max(began) > 1) == moved


def test_a_gain_that_a_restart_eats_up_moves_nobody(start, job):
    # Turns of half of the time last two rounds of 100 s: half of it goes into a restart of 100 s.
    twice = make_table([[1.0, 1.9], [1.0, 1.9]])
    assert exchange(start, job, even, [twice] * 20, restart_s=100.0) == [1, 1]
    assert min(exchange(start, job, even, [twice] * 20, restart_s=80.0)) > 3


def test_a_much_faster_type_is_still_shared_by_turns(start, job):
    unlike = make_table([[1.0, 0.3], [1.0, 0.3]])
    assert min(exchange(start, job, even, [unlike] * 20)) > 5


def test_jobs_that_keep_nothing_begin_anew_once_at_most(start, job):
    unlike = make_table([[1.0, 0.3], [1.0, 0.3]])
    assert exchange(start, job, even, [unlike] * 20, keeps=False) == [2, 2]


def test_where_a_figure_says_nothing_of_its_type_turns_are_taken(start, job):
    shown = make_table([[1.0, 1.0], [1.0, 1.0]], doubt=math.inf)
    assert min(exchange(start, job, even, [shown] * 20)) > 5


@pytest.mark.parametrize("allocate", [even, by_turns()])
def test_a_lone_job_on_idle_equal_workers_never_moves(start, job, allocate):
    shell = start(
        "type-0:2,type-1:2,type-2:2", rates=((1.0, 1.0, 1.0),), allocate=allocate, settings=KEEP
    )
    shell.submit(job("alone"), profile=0)
    for i in range(1, 60):
        shell.run(until_s=100.0 * i)
        shell.tell(ev.ConfigurationsChanged(table=shell.engine.table))
    assert shell.engine.jobs["attempts"].tolist() == [1]
    assert not shell.engine.book.stopping


def test_a_dearer_type_is_another_value_though_it_is_as_fast():
    cluster = parse_cluster_spec(
        "type-0:1,type-1:1", workers_per_node=4, prices={"type-0": 9.0, "type-1": 1.0}
    )
    table = make_table([[1.0, 1.0]])
    equivalent = EquivalentConfigurations.of(table, cluster.cost_usd_per_hour)
    assert not equivalent.shared.any()


# -- any round ----------------------------------------------------------------------------------


def choose(jobs, table, equivalent, capacity):
    return choose_round(
        RoundInputs(
            jobs=jobs,
            pairs=PairTable(),
            table=table,
            equivalent=equivalent,
            eligible=np.ones(len(jobs), dtype=bool),
            free=capacity,
            length_s=100.0,
            keep_bonus_s=50.0,
            band=EngineSettings(round_length_s=100.0).band(follow_exactly=False),
        )
    )


@given(rounds())
@settings(max_examples=300, deadline=None)
def test_credit_is_spread_over_equal_configurations_in_proportion_to_x(drawn):
    jobs, _, equivalent, _ = drawn
    jobs.x[jobs.x < 0.2] = 0.0
    expected = jobs.credit_s.copy()
    for row, profile in enumerate(jobs["profile"].tolist()):
        x, group = jobs.x[row], equivalent.group[profile]
        if not equivalent.shared[profile]:
            continue
        for first in set(group.tolist()):
            alike = np.flatnonzero(group == first)
            if (total := sum(x[alike])) > 0.0:
                expected[row, alike] = sum(jobs.credit_s[row, alike]) * x[alike] / total
    spread_credit(jobs, equivalent)
    assert jobs.credit_s.tolist() == expected.tolist()


@given(rounds())
@settings(max_examples=300, deadline=None)
def test_a_round_never_takes_more_workers_than_there_are(drawn):
    jobs, table, equivalent, capacity = drawn
    choice = choose(jobs, table, equivalent, capacity)
    rows = np.flatnonzero(choice.configuration != NONE)
    profile = jobs["profile"][rows]
    assert (table.throughput[profile, choice.configuration[rows]] > 0).all()
    used = table.demand[profile, choice.configuration[rows]].sum(axis=0)
    assert (used <= capacity).all()
    stays = choice.turn_of != NONE
    assert (choice.configuration[stays] == jobs["configuration"][stays]).all()


@given(rounds())
@settings(max_examples=300, deadline=None)
def test_no_two_jobs_could_exchange_what_they_have_so_that_more_stay(drawn):
    jobs, table, equivalent, capacity = drawn
    held, profile = jobs["configuration"], jobs["profile"]
    chosen = choose(jobs, table, equivalent, capacity).configuration

    def equals(row):
        group = equivalent.group[profile[row]]
        return np.flatnonzero(group == group[chosen[row]])

    moved = [
        i for i in range(len(jobs)) if NONE not in {held[i], chosen[i]} and held[i] != chosen[i]
    ]
    for i in moved:
        if held[i] not in equals(i):
            continue
        mine, wanted = table.demand[profile[i], [chosen[i], held[i]]]
        for j in np.flatnonzero((chosen != NONE) & (chosen != held)).tolist():
            theirs = table.demand[profile[j], chosen[j]]
            if (theirs == wanted).all():
                others = table.demand[profile[j], equals(j)]
                assert not (others == mine).all(axis=1).any()


def test_many_jobs_that_are_alike_are_left_where_they_are(start, job):
    shell = start(
        ",".join(f"type-{k}:3" for k in range(4)),
        rates=((1.0,) * 4,),
        allocate=three_tenths,
        settings=KEEP,
    )
    for i in range(40):
        shell.submit(job(f"job-{i}"), profile=0)
    place, began = {}, 0
    for i in range(1, 30):
        shell.run(until_s=100.0 * i + 50.0)
        leases = {x.job_id: x for x in shell.engine.book.leases.values()}
        for job_id, lease in leases.items():
            if job_id in place and place[job_id].lease_id != lease.lease_id:
                began += 1
        assert len(leases) == 12
        place = leases
    assert began == 0
