"""A node that is being left: no word on its leases counts before its word on its workers."""

from scheduler.control.state.transaction import Transaction
from scheduler.domain.facts import events as ev
from scheduler.domain.lease_life import EndReason, LeasePhase

TWO = {"n0": ("v100",), "n1": ("v100",)}
CORDONED = "the node is cordoned"


async def evict(stage, lease_id):
    """One report has both the end of a lease and the node's cordon, as agents on pods do."""
    node = stage.node("n0")
    run = node.runs[lease_id]
    node._end(run, EndReason.LOST, message="EvictionByEvictionAPI")
    node.problems[0] = CORDONED
    report = node.report()
    assert report.workers[0].problem
    assert report.leases[0].state is LeasePhase.ENDED
    await stage.do(stage.service.report(report, address="a", version="v"))


def test_an_evicted_job_is_never_granted_the_node_that_it_leaves(live):
    async def story(stage):
        await stage.job(total_steps=30.0)
        (lease,) = stage.service.leases()
        assert lease.nodes == ("n0",)
        await stage.wait(2)
        await evict(stage, lease.lease_id)
        await stage.wait(40)
        assert stage.status() == "completed"
        assert [a.nodes for a in stage.store.attempts("job")] == [("n0",), ("n1",)]
        assert stage.row().failures == 0

    live(story, nodes=TWO)


def test_the_engine_is_told_of_a_worker_before_it_is_told_who_has_left_it():
    """Else a lease that is planned on the worker is granted, and taken away at once."""
    turn = Transaction(now_s=1.0)
    turn.emit(ev.LeaseEnded(lease_id=1, reason=EndReason.COMPLETED, steps_done=1.0))
    turn.emit(ev.WorkersReturned(workers=(0,)), ev.WorkersCordoned(workers=(0,)))
    turn.emit(ev.WorkersLost(workers=(1,)))
    told = [type(event).__name__ for event in turn.ordered()]
    assert told == ["WorkersReturned", "WorkersCordoned", "WorkersLost", "LeaseEnded"]
