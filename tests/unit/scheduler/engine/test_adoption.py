"""Decisions of another version are taken over as they are on record; more of it in test_machine."""

from scheduler.domain.facts import events as ev
from scheduler.domain.lease_life import EndReason


def test_nodes_that_a_job_avoids_are_kept_and_forgotten_with_it(start, job):
    shell = start("type-0:8", settings={"avoid_node_s": 500.0})
    for name in "ab":
        shell.submit(job(name))
        (lease,) = (run.lease for run in shell.executions.values() if run.lease.job_id == name)
        del shell.executions[lease.lease_id]
        end = ev.LeaseEnded(
            lease_id=lease.lease_id,
            reason=EndReason.LOST,
            steps_done=0.0,
            unstarted=lease.workers,
        )
        shell.tell(end)
    shell._take_snapshot()
    avoided = {number: until for number, _, _, until in shell.engine.avoidance.dump()}
    assert len(avoided) == 2
    shell.tell(ev.JobCancelled(job_id="a"))
    shell.upgrade()
    b = shell.engine.jobs.number_of["b"]
    assert {number: until for number, _, _, until in shell.engine.avoidance.dump()} == {
        b: avoided[b]
    }
    shell.run(until_s=600.0)
    assert set(shell.running()) == {"b"}


def test_what_a_job_has_received_goes_on_from_the_snapshot(start, job):
    shell = start("type-0:2", gangs=[2])
    shell.submit(job("a", scale_factor=2))
    shell.run(until_s=40.0)
    shell.tell()
    shell._take_snapshot()
    shell.run(until_s=70.0)
    shell.tell()
    shell.end(1, EndReason.LOST)
    for _ in range(2):
        assert shell.engine.jobs["attained_worker_s"].tolist() == [140.0]
        assert shell.engine.held_before_s("a") == 70.0
        shell.upgrade()


def test_ids_of_leases_are_not_given_twice(start, job):
    shell = start("type-0:1")
    shell.submit(job("a", total_steps=10.0))
    shell.submit(job("b", total_steps=10.0))
    shell.run(until_s=30.0)
    assert shell.ended == {"a": "job_completed", "b": "job_completed"}
    newest = shell.engine.newest_lease
    shell.upgrade()
    assert shell.engine.newest_lease == newest
    shell.submit(job("c"))
    assert [run.lease.lease_id for run in shell.executions.values()] == [newest + 1]
