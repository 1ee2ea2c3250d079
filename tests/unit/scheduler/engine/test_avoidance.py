"""A node on which a job could not be started is left to others for a while."""

import itertools

import numpy as np
import pytest

from leasehold_testing.shell import VirtualShell
from policies.testing import make_table
from scheduler.domain.allocation import Allocation
from scheduler.domain.cluster import Cluster, Node, WorkerType
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.lease_life import EndReason
from scheduler.engine.limits.node_exclusions import LONGEST, NodeExclusions
from scheduler.engine.settings import EngineSettings
from scheduler.engine.snapshot import decode_state, dump, encode_state, restore
from scheduler.engine.tables.fleet import Fleet
from scheduler.errors import ParameterError

AVOID_S = 150.0


def nodes(*workers, types=1):
    return Cluster(
        worker_types=tuple(WorkerType(name=f"type-{k}") for k in range(types)),
        nodes=tuple(Node(name=f"n{i}", workers=kinds) for i, kinds in enumerate(workers)),
    )


@pytest.fixture
def shell():
    """Rounds of 100 s over nodes of given workers."""

    def begin(*workers, types=1, rates=((1.0,),), gangs=None, **options):
        settings = EngineSettings(round_length_s=100.0, keep_bonus=0.0, avoid_node_s=AVOID_S)
        table = make_table(rates, scale_factor=gangs)
        return VirtualShell(nodes(*workers, types=types), table, settings=settings, **options)

    return begin


def not_started(shell, job_id, *workers):
    """Let a job's lease end as the agent does that could not start it."""
    (run,) = [r for r in shell.executions.values() if r.lease.job_id == job_id]
    lease = run.lease
    del shell.executions[lease.lease_id]
    shell.tell(
        ev.LeaseEnded(
            lease_id=lease.lease_id,
            reason=EndReason.LOST,
            steps_done=0.0,
            unstarted=workers or lease.workers,
        )
    )
    shell.engine.check_invariants()


def failed(shell, job_id, *workers):
    """Let a job's processes fail by themselves, and wait until its next try is due."""
    (run,) = [r for r in shell.executions.values() if r.lease.job_id == job_id]
    lease = run.lease
    del shell.executions[lease.lease_id]
    shell.tell(
        ev.LeaseEnded(
            lease_id=lease.lease_id,
            reason=EndReason.FAILED,
            steps_done=0.0,
            failed=workers or lease.workers,
        )
    )
    shell.engine.check_invariants()
    row = shell.engine.jobs.row_of(shell.engine.jobs.number_of[job_id])
    shell.run(until_s=float(shell.engine.jobs["retry_at_s"][row]) + 1.0)


def told(shell):
    return [e for _, e in shell.history(do.RecordEvent) if e.kind == "job_avoids_node"]


ONE = ("type-0",)


def test_a_job_that_could_not_be_started_goes_to_another_node_at_once(shell, job):
    there = shell(ONE, ONE)
    there.submit(job("a"))
    assert there.running() == {"a": (0,)}
    not_started(there, "a")
    assert there.running() == {"a": (1,)}
    (line,) = told(there)
    assert (line.subject, dict(line.data)) == ("a", {"node": "n0", "times": 1, "wait_s": AVOID_S})


def test_with_no_other_node_it_waits_longer_each_time_and_is_tried_again_by_itself(shell, job):
    there = shell(ONE)
    there.submit(job("a"))
    waits = []
    for _ in range(7):
        before = there.now
        not_started(there, "a")
        assert there.running() == {}
        there.run(until_s=before + told(there)[-1].data["wait_s"] - 1.0)
        assert there.running() == {}
        there.run(until_s=there.now + 2.0)
        assert there.running() == {"a": (0,)}
        waits.append(told(there)[-1].data["wait_s"] / AVOID_S)
    assert waits == [1, 2, 4, 8, 16, LONGEST, LONGEST]


def test_others_may_use_the_node_meanwhile(shell, job):
    there = shell(ONE)
    there.submit(job("a"))
    there.submit(job("b"))
    not_started(there, "a")
    assert there.running() == {"b": (0,)}
    there.run(until_s=140.0)  # a round has been planned: no plan waits for a job that must not come
    assert there.running() == {"b": (0,)}


def test_a_job_that_was_started_there_since_begins_anew(shell, job):
    there = shell(ONE)
    there.submit(job("a"))
    not_started(there, "a")
    there.run(until_s=AVOID_S + 1.0)
    there.end(next(iter(there.executions)), EndReason.RELEASED)
    there.run(until_s=AVOID_S + 110.0)
    not_started(there, "a")
    assert [line.data["times"] for line in told(there)] == [1, 1]


def test_a_gang_avoids_the_node_of_the_member_that_did_not_start(shell, job):
    there = shell(ONE * 2, ONE * 2, ONE * 2, ONE * 2, gangs=[4])
    there.submit(job("a", scale_factor=4))
    (workers,) = there.running().values()
    assert workers == (0, 1, 2, 3)
    not_started(there, "a", 2, 3)
    (workers,) = there.running().values()
    assert set(workers).isdisjoint({2, 3})
    assert [line.data["node"] for line in told(there)] == ["n1"]


def test_the_next_tries_of_a_job_that_fails_go_to_nodes_on_which_it_has_not_failed(shell, job):
    there = shell(ONE, ONE, ONE, ONE)
    there.submit(job("a", max_failures=9))
    seen = []
    for _ in range(8):
        seen += there.running()["a"]
        failed(there, "a")
    assert sorted(seen[:4]) == [0, 1, 2, 3]
    assert all(before != after for before, after in itertools.pairwise(seen))
    assert {line.data["node"] for line in told(there)} == {"n0", "n1", "n2", "n3"}


@pytest.mark.parametrize("elsewhere", ["no node", "busy", "out of service", "set to 0"])
def test_a_job_that_fails_is_tried_again_where_it_was_if_it_can_run_nowhere_else(
    shell, job, elsewhere
):
    there = shell(ONE) if elsewhere == "no node" else shell(ONE, ONE)
    if elsewhere == "set to 0":
        there = VirtualShell(
            nodes(ONE, ONE), make_table(((1.0,),)), settings=EngineSettings(avoid_node_s=0.0)
        )
    there.submit(job("a", max_failures=9))
    assert there.running() == {"a": (0,)}
    if elsewhere == "out of service":
        there.tell(ev.WorkersCordoned(workers=(1,)))
    if elsewhere == "busy":
        there.submit(job("b"))
        failed(there, "a")
        assert there.running()["b"] == (1,)
        there.run(until_s=there.now + 300.0)
        assert "a" in there.running()
        return
    failed(there, "a")
    assert there.running() == {"a": (0,)}
    assert told(there) == []


def test_a_gang_avoids_the_node_of_the_member_that_failed(shell, job):
    there = shell(ONE * 2, ONE * 2, ONE * 2, gangs=[4])
    there.submit(job("a", scale_factor=4, max_failures=9))
    assert there.running() == {"a": (0, 1, 2, 3)}
    failed(there, "a", 2, 3)
    (workers,) = there.running().values()
    assert set(workers) == {0, 1, 4, 5}


def test_it_takes_its_other_worker_type_although_its_turn_is_on_this_one(shell, job):
    def always_first(problem):
        return Allocation.singles(np.tile([1.0, 0.0], (problem.jobs, 1)))

    there = shell(
        ("type-0",), ("type-1",), types=2, rates=((2.0, 1.0),), allocate=always_first
    )  # fmt: skip
    there.submit(job("a"))
    assert there.running() == {"a": (0,)}
    not_started(there, "a")
    assert there.running() == {"a": (1,)}
    there.run(until_s=120.0)
    assert there.running() == {"a": (1,)}
    there.run(until_s=420.0)
    assert there.running() == {"a": (0,)}


def test_a_cluster_forgets_nothing_of_it_in_a_restart(shell, job):
    there = shell(ONE, ONE)
    there.submit(job("a"))
    there.submit(job("b"))
    not_started(there, "a")
    stored = decode_state(encode_state(dump(there.engine)))
    again = restore(stored, there.engine.settings)
    number = there.engine.jobs.number_of["a"]
    assert again.avoidance.of(number, there.now) == there.engine.avoidance.of(number, there.now)
    assert again.avoidance.of(number, there.now) == [("n0", 1, AVOID_S)]


def test_a_job_that_has_ended_is_forgotten(shell, job):
    there = shell(ONE)
    there.submit(job("a"))
    not_started(there, "a")
    there.tell(ev.JobCancelled(job_id="a"))
    assert there.engine.avoidance.dump() == ()
    assert there.engine.avoidance.next_s(there.now) == np.inf


def test_nodes_are_avoided_by_name_and_apart():
    avoidance = NodeExclusions(Fleet(nodes(ONE * 2, ONE, ONE)))
    assert avoidance.avoid(7, (1, 0, 2), now_s=5.0, first_s=10.0) == [
        ("n0", 1, 10.0),
        ("n1", 1, 10.0),
    ]
    assert avoidance.mask((7,), 6.0).tolist() == [True, True, True, False]
    assert avoidance.mask((8,), 6.0) is None
    avoidance.forgive(7, (0,))
    avoidance.forgive(8, (0,))
    assert avoidance.of(7, 6.0) == [("n1", 1, 15.0)]
    assert avoidance.active(15.0) == []


def test_avoiding_can_be_turned_off_and_its_time_is_a_number(job):
    with pytest.raises(ParameterError, match="avoid_node_s"):
        EngineSettings(avoid_node_s=-1.0)
    there = VirtualShell(
        nodes(ONE), make_table(((1.0,),)), settings=EngineSettings(avoid_node_s=0.0)
    )
    there.submit(job("a"))
    not_started(there, "a")
    assert there.running() == {"a": (0,)}
    assert not told(there)
