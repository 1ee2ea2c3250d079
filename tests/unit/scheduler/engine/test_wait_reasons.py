"""The engine stores why jobs wait when it decides: each reason, and after a restart."""

from dataclasses import replace

import numpy as np
import pytest

from leasehold_testing.answers import equal_shares
from leasehold_testing.shell import VirtualShell
from leasehold_testing.wait_reasons import checked_wait_reasons
from scheduler.domain.allocation import Allocation
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.configuration import CONSOLIDATED, Configuration, ConfigurationTable, Profile
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.reasons import BITS, WaitReason, reasons_in
from scheduler.domain.lease_life import EndReason
from scheduler.domain.quota import Quota
from scheduler.domain.reservation import Reservation
from scheduler.engine.settings import EngineSettings
from scheduler.engine.snapshot import decode_state, dump, encode_state, restore


@pytest.fixture(autouse=True)
def reasons_hold():
    with checked_wait_reasons(pytest.fail):
        yield


def why(shell, job_id, engine=None):
    engine = engine or shell.engine
    return reasons_in(int(engine.jobs["wait_reasons"][engine.state.row_of_job(job_id)]))


def first_only(problem, *, idling=False):
    x = np.zeros_like(problem.throughput)
    x[0, 0] = 1.0
    return Allocation.singles(x, no_backfill=np.full(problem.jobs, idling))


def test_bits_are_in_order_of_precedence():
    assert reasons_in(sum(BITS.values())) == tuple(WaitReason)
    assert reasons_in(0) == ()


def test_a_job_waits_for_an_answer_then_for_its_turn(start, job):
    shell = start("type-0:1")
    shell.submit(job("a"))
    shell.answer_delay_s = 5.0
    shell.submit(job("b"))
    assert why(shell, "b") == (WaitReason.NO_ALLOCATION,)
    shell.run(until_s=50.0)
    waiting = "b" if "a" in shell.running() else "a"
    assert why(shell, waiting) == (WaitReason.TURN,)
    (running,) = shell.running()
    assert why(shell, running) == ()


def test_a_job_that_comes_while_decisions_wait_keeps_waiting_for_an_answer(start, job):
    shell = start("type-0:1", answer_delay_s=None)
    shell.submit(job("a"))
    shell.run(until_s=50.0)  # it runs on a worker that nothing was promised to
    shell.submit(job("b"))
    shell.run(until_s=95.0)
    assert why(shell, "b") == (WaitReason.NO_ALLOCATION,)


@pytest.mark.parametrize("idling", [False, True])
def test_a_job_without_a_share_says_so(start, job, idling):
    shell = start("type-0:1", allocate=lambda problem: first_only(problem, idling=idling))
    shell.submit(job("a"))
    shell.submit(job("b"))
    shell.run(until_s=10.0)
    assert why(shell, "b") == (WaitReason.NO_SHARE,)


def test_a_job_beside_workers_that_idle_on_purpose_says_so(start, job):
    shell = start("type-0:2", allocate=lambda problem: first_only(problem, idling=True))
    shell.submit(job("a"))
    shell.submit(job("b"))
    shell.run(until_s=10.0)
    assert why(shell, "b") == (WaitReason.IDLING,)


def test_a_gang_that_must_lie_on_one_node_waits_for_placement(job):
    profiles = (
        Profile(
            job_type="wide",
            scale_factor=3,
            configurations=(Configuration(demand=(3,), throughput=1.0),),
        ),
        Profile(
            job_type="gang",
            scale_factor=2,
            configurations=(Configuration(demand=(2,), throughput=1.0, locality=CONSOLIDATED),),
        ),
    )
    shell = VirtualShell(
        parse_cluster_spec("type-0:8", workers_per_node=4),
        ConfigurationTable.build(("type-0",), profiles),
        settings=EngineSettings(round_length_s=100.0),
        allocate=equal_shares,
    )
    for name in "ab":
        shell.submit(job(name, preemptible=False, scale_factor=3), 0)
        shell.run(until_s=shell.now + 1.0)
    shell.submit(job("gang", scale_factor=2), 1)
    shell.run(until_s=50.0)
    nodes = [set(shell.engine.fleet.node_of[list(w)]) for w in shell.running().values()]
    assert sorted(map(len, nodes)) == [1, 1]
    assert why(shell, "gang") == (WaitReason.PLACEMENT,)


def test_a_job_waits_for_its_quota_and_not_when_it_has_room(start, job):
    shell = start("type-0:2")
    quota = Quota(project="p", worker_type="", limit=1)
    shell.tell(ev.QuotasChanged(quotas=(quota,)))
    shell.submit(job("a", project="p"))
    shell.submit(job("b", project="p"))
    shell.run(until_s=10.0)
    (waiting,) = {"a", "b"} - set(shell.running())
    assert why(shell, waiting)[0] is WaitReason.QUOTA
    shell.tell(ev.QuotasChanged(quotas=(replace(quota, limit=2),)))
    shell.run(until_s=20.0)
    assert set(shell.running()) == {"a", "b"}


def test_a_job_that_failed_waits_to_be_tried_again(start, job):
    shell = start("type-0:1", settings={"retry_backoff_s": 30.0})
    shell.submit(job("a", max_failures=3))
    shell.run(until_s=10.0)
    shell.end(next(iter(shell.executions)), EndReason.FAILED)
    assert WaitReason.BACKOFF in why(shell, "a")
    shell.run(until_s=45.0)
    assert set(shell.running()) == {"a"}


def test_a_job_waits_for_workers_that_are_set_aside(start, job):
    shell = start("type-0:1")
    shell.submit(job("a"))
    rule = Reservation(
        name="r", worker_type="type-0", workers=1, from_s=150.0, until_s=450.0, project="p"
    )
    shell.tell(ev.ReservationsChanged(reservations=(rule,), name="r", members={}))
    shell.run(until_s=300.0)
    assert shell.running() == {}
    assert why(shell, "a")[0] is WaitReason.RESERVATION
    shell.run(until_s=500.0)
    assert set(shell.running()) == {"a"}


def test_a_pair_that_shares_workers_has_a_share(start, job, pair_up):
    shell = start("type-0:1", shared={(0, 0, 0): (0.9, 0.9)}, allocate=pair_up)
    shell.submit(job("a"))
    shell.submit(job("b"))
    shell.submit(job("c"))
    shell.run(until_s=150.0)
    assert set(shell.running()) == {"a", "b"}
    assert why(shell, "c") == (WaitReason.NO_SHARE,)
    shell.tell(ev.WorkersLost(workers=(0,)))
    shell.run(until_s=151.0)
    assert why(shell, "a") == (WaitReason.TURN,)


def test_reasons_outlive_a_restart_and_are_missing_in_snapshots_of_older_releases(start, job):
    shell = start("type-0:1", allocate=first_only)
    shell.submit(job("a"))
    shell.submit(job("b"))
    shell.run(until_s=10.0)
    stored = decode_state(encode_state(dump(shell.engine)))
    again = restore(stored, shell.engine.settings)
    assert why(shell, "b", again) == (WaitReason.NO_SHARE,)
    columns = {name: values for name, values in stored.columns.items() if name != "wait_reasons"}
    old = restore(replace(stored, columns=columns), shell.engine.settings)
    assert why(shell, "b", old) == ()
    old.handle(now=200.0)  # the next round
    assert why(shell, "b", old) == (WaitReason.NO_SHARE,)
