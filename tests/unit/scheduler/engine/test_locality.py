"""Consolidated gangs get one node or wait; a job with a plan is launched with it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold_testing.shell import VirtualShell
from scheduler.domain.allocation import Allocation
from scheduler.domain.cluster import Cluster, Node, WorkerType
from scheduler.domain.configuration import (
    CONSOLIDATED,
    Configuration,
    ConfigurationTable,
    PairConfiguration,
    Profile,
)
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.jobs.job import Job
from scheduler.engine.placement.placement import Placer
from scheduler.engine.settings import EngineSettings
from scheduler.engine.tables.columns import follow_configurations
from scheduler.engine.tables.fleet import Fleet

ROUND_S = 100.0


def cluster_of(*sizes):
    nodes = (Node(name=f"n{v}", workers=("x",) * size) for v, size in enumerate(sizes))
    return Cluster(worker_types=(WorkerType(name="x"),), nodes=tuple(nodes))


def way(count, rate=1.0, **values):
    return Configuration(demand=(count,), throughput=rate, **values)


def table_of(*profiles, pairs=()):
    """Each profile is a tuple of configurations on one worker type."""
    return ConfigurationTable.build(
        ("x",),
        tuple(
            Profile(job_type=f"t{u}", scale_factor=ways[0].demand[0], configurations=ways)
            for u, ways in enumerate(profiles)
        ),
        pairs,
    )


def shell_of(sizes, table, allocate):
    settings = EngineSettings(round_length_s=ROUND_S, keep_bonus=0.0)
    return VirtualShell(cluster_of(*sizes), table, settings=settings, allocate=allocate)


def always(problem):
    """All jobs should run all the time in their first way that can run, as far as X may say so."""
    x = np.zeros(problem.throughput.shape)
    x[np.arange(problem.jobs), (problem.throughput > 0).argmax(axis=1)] = 1.0
    return Allocation.singles(x, solver="always")


def half(problem):
    """Each job has half of the time."""
    return Allocation.singles((problem.throughput > 0) * 0.5, solver="half")


def submit(shell, name, profile, gang=1, steps=1e6):
    job = Job(job_id=name, job_type=f"t{profile}", total_steps=steps, scale_factor=gang)
    shell.tell(ev.JobSubmitted(job=job, profile=profile))


def nodes_of(shell, workers):
    return set(shell.engine.fleet.node_of[list(workers)].tolist())


SINGLE = (way(1),)
GANG = (way(4, locality=CONSOLIDATED),)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    taken=st.integers(0, 2**25 - 1),
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=4),
)
def test_requests_get_workers_of_the_tightest_node_or_none(sizes, taken, counts):
    cluster = cluster_of(*sizes)
    available = np.array([not taken >> w & 1 for w in range(cluster.workers)])
    before = available.copy()
    demands = np.array(counts)[:, None]
    together = np.ones(len(counts), dtype=bool)
    found = Placer(Fleet(cluster)).place(demands, available, together=together)
    free = np.bincount(cluster.node_of[before], minlength=len(sizes))
    for r in sorted(range(len(counts)), key=lambda r: (-counts[r], r)):
        rooms = free[free >= counts[r]]
        assert bool(found[r]) == bool(len(rooms))
        if found[r]:
            (node,) = set(cluster.node_of[list(found[r])].tolist())
            assert free[node] == rooms.min()
            assert len(found[r]) == counts[r]
            free[node] -= counts[r]
    given_out = [worker for workers in found for worker in workers]
    assert len(set(given_out)) == len(given_out)
    assert before[given_out].all()
    assert before.sum() - available.sum() == len(given_out)


def test_a_gang_waits_for_a_node_although_enough_workers_are_idle():
    shell = shell_of((4, 4), table_of(SINGLE, GANG), half)
    for name in ("a", "b", "c"):
        submit(shell, name, 0)
    shell.tell(ev.WorkersLost(workers=(3, 4)))
    submit(shell, "gang", 1, gang=4)
    assert "gang" not in shell.running()
    shell.run(until_s=10 * ROUND_S)
    assert "gang" not in shell.running()  # no node has four workers in service
    shell.tell(ev.WorkersReturned(workers=(4,)))
    shell.run(until_s=20 * ROUND_S)
    assert nodes_of(shell, shell.running()["gang"]) == {1}


def test_jobs_move_away_from_a_node_for_a_gang_that_is_due():
    table = table_of(SINGLE, GANG)
    shell = shell_of((4, 4), table, always)
    for i in range(8):
        submit(shell, f"single-{i}", 0)
    held = shell.running()
    first = [name for name in sorted(held) if 0 in nodes_of(shell, held[name])]
    second = [name for name in sorted(held) if 1 in nodes_of(shell, held[name])]
    # Two jobs go from each node: four workers are free, two on each.
    shell.tell(*(ev.JobCancelled(job_id=name) for name in (*first[:2], *second[:2])))
    submit(shell, "gang", 1, gang=4)
    assert "gang" not in shell.running()
    shell.run(until_s=3 * ROUND_S)
    running = shell.running()
    assert len(running) == 5
    assert len(nodes_of(shell, running["gang"])) == 1
    # The other node's jobs have stayed where they are, and two have moved once.
    attempts = [
        len([g for _, g in shell.history(do.GrantLease) if g.lease.job_id == n])
        for n in (*first[2:], *second[2:])
    ]
    assert sorted(attempts) == [1, 1, 2, 2]


def test_a_gang_that_no_node_could_ever_hold_takes_nobody_elses_turn():
    ways = (way(6, 9.0, locality=CONSOLIDATED), way(6, 3.0))
    shell = shell_of((4, 4), table_of(ways), half)
    submit(shell, "gang", 0, gang=6)
    shell.run(until_s=ROUND_S)
    lease = shell.history(do.GrantLease)[-1][1].lease
    assert lease.configuration == 1
    assert len(lease.workers) == 6


def test_a_gang_that_may_span_nodes_does_as_before():
    shell = shell_of((4, 4), table_of((way(6),)), always)
    submit(shell, "gang", 0, gang=6)
    assert len(nodes_of(shell, shell.running()["gang"])) == 2


def test_a_way_over_several_nodes_is_never_taken_for_one_on_a_single_node():
    old = table_of((way(4), way(4, plan="p")))
    near = table_of((way(4, locality=CONSOLIDATED), way(4, plan="p")))
    assert follow_configurations(old, near)[0].tolist() == [-1, 1]
    assert follow_configurations(near, old) == {}  # one node may be any node


def test_a_job_on_several_nodes_starts_anew_when_its_way_must_lie_on_one():
    shell = shell_of((3, 4), table_of((way(3),), (way(4),)), always)
    submit(shell, "spread", 1, gang=4)
    shell.tell(ev.WorkersLost(workers=(3,)))
    shell.run(until_s=2 * ROUND_S)
    assert len(nodes_of(shell, shell.running()["spread"])) == 2
    shell.tell(ev.WorkersReturned(workers=(3,)))
    shell.tell(ev.ConfigurationsChanged(table=table_of((way(3),), GANG)))
    shell.run(until_s=4 * ROUND_S)
    assert nodes_of(shell, shell.running()["spread"]) == {1}


def test_a_job_with_a_plan_is_launched_anew_before_it_shares():
    pair = PairConfiguration(profiles=(0, 0), demand=(1,), throughput=(0.9, 0.9))
    turn = {"together": False}

    def allocate(problem):
        if turn["together"] and problem.jobs == 2:
            return Allocation(
                x=np.zeros_like(problem.throughput),
                pair_jobs=np.array([[0, 1]]),
                pair_index=np.array([0]),
                pair_x=np.array([1.0]),
            )
        return always(problem)

    for plan, attempts in (("", 1), ("halves", 2)):
        turn["together"] = False
        shell = shell_of((1,), table_of((way(1, plan=plan),), pairs=(pair,)), allocate)
        submit(shell, "a", 0)
        turn["together"] = True
        submit(shell, "b", 0)
        shell.run(until_s=3 * ROUND_S)
        assert set(shell.running()) == {"a", "b"}
        grants = [g.lease.job_id for _, g in shell.history(do.GrantLease)]
        assert grants.count("a") == attempts
        assert grants.count("b") == 1


@pytest.mark.parametrize("plan", ["", "halves"])
def test_who_is_left_of_a_pair_goes_on_in_a_way_without_a_plan(plan):
    ways = (way(1, plan="halves"), way(1, 0.5, plan=plan))
    pair = PairConfiguration(profiles=(0, 0), demand=(1,), throughput=(0.9, 0.9))

    def together(problem):
        if problem.jobs < 2:
            return always(problem)
        return Allocation(
            x=np.zeros_like(problem.throughput),
            pair_jobs=np.array([[0, 1]]),
            pair_index=np.array([0]),
            pair_x=np.array([1.0]),
        )

    shell = shell_of((1,), table_of(ways, pairs=(pair,)), together)
    submit(shell, "a", 0)
    submit(shell, "b", 0)
    shell.run(until_s=2 * ROUND_S)
    assert set(shell.running()) == {"a", "b"}
    shell.tell(ev.JobCancelled(job_id="b"))
    row = shell.engine.jobs.row_of(shell.engine.jobs.number_of["a"])
    assert int(shell.engine.jobs["configuration"][row]) == (-1 if plan else 1)
