"""How leases end, and what that means for their jobs."""

from dataclasses import replace

import pytest

from scheduler.control.facts.requests import JobAction
from scheduler.control.nodes.reports import OTHER_AGENT_S
from scheduler.control.state.leases import LiveLease, Member, MemberEnd
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.errors import ConflictError, NotFoundError
from scheduler.protocol.desired import LEFT_UNASKED
from scheduler.protocol.reports import LeaseReport, NodeReport, WorkerReport
from simulator.world.nodes import Mishap

GANG = {"n0": ("v100",), "n1": ("v100",)}


def fail(stage, steps=2.0, end=EndReason.FAILED, node="", job="job"):
    stage.world.mishaps.setdefault(job, []).append(Mishap(steps=steps, end=end, node=node))


def test_rows_tell_each_attempt_from_its_grant_to_its_end(live):
    async def story(stage):
        fail(stage)
        await stage.job(total_steps=6.0)
        await stage.wait(15)
        first, second = stage.store.attempts("job")
        assert (first.attempt, first.end_reason.value, first.exit_code) == (1, "failed", 1)
        assert (first.start_s, first.ended_s, first.message) == (0.5, 2.5, "a mishap")
        assert (first.nodes, first.workers, first.worker_type) == (("n0",), (0,), "v100")
        assert first.token < second.token
        assert (second.end_reason.value, second.steps_done) == ("completed", 6)
        row = stage.row()
        assert (row.started_s, row.finished_s, row.failures, row.attempts) == (0.5, 10.5, 1, 2)
        assert stage.kinds("job") == [
            "job_submitted",
            "job_admitted",
            "lease_granted",
            "first_step",
            "lease_ended",
            "job_retried",
            "lease_granted",
            "first_step",
            "lease_ended",
            "job_completed",
        ]

    live(story)


def test_a_job_that_uses_up_its_retries_has_failed(live):
    async def story(stage):
        for _ in range(2):
            fail(stage, 0.0)
        await stage.job(max_failures=1)
        await stage.wait(15)
        assert (stage.status(), stage.row().failures) == ("failed", 2)
        assert stage.ends() == ["failed", "failed"]
        assert (await stage.explanation()).message == (
            "it has ended as failed; its last attempt: a mishap"
        )

    live(story)


@pytest.mark.parametrize(("retry", "status"), [(True, "completed"), (False, "failed")])
def test_lack_of_memory_is_retried_if_the_user_wants_so(live, retry, status):
    async def story(stage):
        fail(stage, end=EndReason.OOM)
        await stage.job(retry_oom=retry)
        await stage.wait(20)
        assert stage.status() == status
        assert stage.row().reason == ("" if retry else "out_of_memory")
        assert stage.store.attempts("job")[0].end_reason is EndReason.OOM

    live(story)


def test_when_a_member_fails_its_partners_are_stopped_and_the_lease_ends_once(live):
    async def story(stage):
        fail(stage, 3.0, node="n1")
        await stage.job(scale_factors=(2,), total_steps=20.0)
        (lease,) = stage.service.leases()
        assert lease.nodes == ("n0", "n1")
        await stage.wait(4)
        assert stage.ends()[0] == "failed"
        assert len(stage.history("lease_ended")) == 1
        assert stage.node("n0").runs == {} or all(
            run.end is EndReason.CANCELLED for run in stage.node("n0").runs.values()
        )
        await stage.wait(30)
        assert stage.status() == "completed"
        assert stage.row().failures == 1

    live(story, nodes=GANG)


def begun_again(action):
    raise AssertionError(f"begun again: {action}")


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_part_of_a_gang_that_has_ended_is_not_started_again_by_the_next_scheduler(live, snapshot):
    async def story(stage):
        await stage.job(scale_factors=(3,), total_steps=60.0)
        await stage.wait(1)
        stage.links["n2"].cut = True
        fail(stage)
        await stage.wait(3)
        assert stage.node("n1").runs == {}, "its end is known, so the node has forgotten it"
        assert stage.ends() == [None]
        node = stage.node("n1")
        node._start = begun_again
        if snapshot:
            await stage.driver.write_snapshot()
        await stage.restart()
        await stage.wait(2)
        del node._start
        stage.links["n2"].cut = False
        await stage.wait(2)
        assert stage.ends()[0] == "failed"
        assert stage.row().failures == 1
        assert [row.key for row in stage.store.settings("ended/")] == []

    live(story, nodes=GANG | {"n2": ("v100",)})


def test_a_gang_that_fails_because_a_partner_was_lost_has_not_failed(live):
    async def story(stage):
        fail(stage, 3.0, node="n0")  # the connection to rank 1 breaks
        await stage.job(scale_factors=(2,), total_steps=20.0, max_failures=0)
        stage.node("n1").wipe()
        stage.links["n1"].cut = True
        await stage.wait(6)
        assert stage.ends() == [None]  # the partner has not been heard of
        stage.links["n1"].cut = False
        await stage.wait(1)
        assert stage.ends()[0] == "lost"
        assert (stage.row().failures, stage.status()) == (0, "running")

    live(story, nodes=GANG)


@pytest.mark.parametrize(
    ("members", "left"),
    [
        ([(LEFT_UNASKED, None)], True),
        ([("", None)], False),
        ([(LEFT_UNASKED, None), ("", 7.0)], True),  # the second was asked to leave with the first
        ([("", None), (LEFT_UNASKED, 7.0)], False),  # the first had to leave, and took it along
        ([("", None), (LEFT_UNASKED, None)], False),
    ],
)
def test_a_gang_left_by_itself_only_if_none_of_it_had_to(members, left):
    made = tuple(
        Member(
            node=f"n{i}", local=(0,), rank=i, leave_by_s=by_s,
            end=MemberEnd(reason=EndReason.RELEASED, reason_code=code),
        )
        for i, (code, by_s) in enumerate(members)
    )  # fmt: skip
    live = LiveLease(lease=None, cause=None, worker_type="", members=made, deadline_s=0.0)
    assert live.left_unasked is left
    live.revoked = "outbid"
    assert not live.left_unasked


@pytest.mark.parametrize(
    ("ends", "gravest"),
    [
        ((EndReason.COMPLETED, EndReason.RELEASED), EndReason.RELEASED),
        ((EndReason.CANCELLED, EndReason.FAILED), EndReason.FAILED),
        ((EndReason.FAILED, EndReason.OOM), EndReason.OOM),
        ((EndReason.OOM, EndReason.LOST), EndReason.LOST),
        ((EndReason.FAILED, EndReason.RELEASED), EndReason.RELEASED),
    ],
)
def test_the_gravest_end_of_a_gang_counts(ends, gravest):
    members = tuple(
        Member(node=f"n{i}", local=(0,), rank=i, end=MemberEnd(reason=end))
        for i, end in enumerate(ends)
    )
    live = LiveLease(lease=None, cause=None, worker_type="", members=members, deadline_s=0.0)
    assert live.ended
    assert live.outcome().reason is gravest


def test_a_job_over_its_run_time_is_ended_for_good(live):
    async def story(stage):
        await stage.job(total_steps=50.0, max_run_time_s=7.0)
        await stage.wait(3)
        await stage.restart()
        await stage.wait(5.5)
        assert (stage.status(), stage.row().reason) == ("failed", "time_limit")
        (line,) = stage.history("time_limit")
        assert line.data["held_s"] == pytest.approx(7.0, abs=0.6)

    live(story)


def test_a_limit_that_is_reached_while_the_scheduler_restarts_still_says_so(live):
    async def story(stage):
        stage.links["n0"].cut = True
        stage.links["n0"].cut = False
        await stage.job(total_steps=50.0, max_run_time_s=3.0)
        stage.links["n0"].cut = True
        await stage.wait(4)
        assert stage.status() == "running"
        await stage.crash()
        await stage.start()
        stage.links["n0"].cut = False
        await stage.settle()
        await stage.wait(2)
        assert (stage.status(), stage.row().reason) == ("failed", "time_limit")

    live(story)


# -- reports that come late, twice, or from another time ------------------------------------------


def report(stage, *leases, sequence=10**6, term=None, revision=10**6, incarnation=None):
    node = stage.node("n0")
    return NodeReport(
        node="n0",
        incarnation=node.incarnation if incarnation is None else incarnation,
        sequence=sequence,
        term=stage.state.term if term is None else term,
        revision=revision,
        workers=(WorkerReport(index=0, worker_type="v100"),),
        leases=leases,
    )


def of_lease(stage, **values):
    lease = stage.state.leases.by_id[1].lease
    usual = {"lease_id": lease.lease_id, "token": lease.token, "state": LeasePhase.RUNNING}
    return LeaseReport(**usual | values)


async def tell(stage, told):
    stage.links["n0"].cut = True
    await stage.do(stage.service.report(told, address="a", version="v"))


def test_a_report_that_does_not_name_a_lease_ends_it_where_the_node_knew_of_it(live):
    async def story(stage):
        await stage.job(total_steps=50.0)
        await tell(stage, report(stage))
        assert stage.ends()[0] == "lost"
        assert "knows nothing" in stage.store.attempts("job")[0].message

    live(story)


@pytest.mark.parametrize("stale", [{"revision": 1}, {"term": 0}, {"revision": 0}])
def test_a_node_that_has_not_heard_of_a_lease_need_not_name_it(live, stale):
    async def story(stage):
        await stage.job(total_steps=50.0)
        await tell(stage, report(stage, **stale))
        assert stage.ends() == [None]

    live(story)


def test_a_cancelled_lease_that_is_named_no_more_is_over(live):
    async def story(stage):
        await stage.job(total_steps=50.0)
        stage.links["n0"].cut = True
        await stage.do(stage.service.act(["job"], JobAction.CANCEL, actor="x"))
        await tell(stage, report(stage))
        assert stage.status() == "cancelled"
        assert stage.ends() == ["lost"]

    live(story)


def test_another_lease_of_the_same_number_is_not_taken_for_the_one_that_was_granted(live, caplog):
    async def story(stage):
        await stage.job(total_steps=50.0)
        other = {"nonce": "0" * 16, "job_id": "lost-job"}
        end = of_lease(stage, state=LeasePhase.ENDED, reason=EndReason.COMPLETED, **other)
        await tell(stage, report(stage, end))
        assert stage.ends() == [None]
        assert "has lost its newest entries: node 'n0' holds leases of 'lost-job'" in caplog.text
        append = stage.service.append_log
        with pytest.raises(NotFoundError, match="another one of that number"):
            await append("n0", 1, "out", offset=0, data=b"foreign", nonce="0" * 16)
        nonce = stage.state.leases.by_id[1].lease.nonce
        assert await append("n0", 1, "out", offset=0, data=b"own", nonce=nonce) == 3
        end = of_lease(stage, state=LeasePhase.ENDED, reason=EndReason.COMPLETED, nonce=nonce)
        await tell(stage, report(stage, end, sequence=10**6 + 1))
        assert stage.ends() == ["completed"]
        with pytest.raises(NotFoundError, match="another one of that number"):
            await append("n0", 1, "out", offset=3, data=b"foreign", nonce="0" * 16)
        assert await append("n0", 1, "out", offset=3, data=b"!", nonce=nonce) == 4

    live(story)


def test_a_lease_that_was_not_given_out_yet_tells_that_entries_are_lost(live, caplog):
    async def story(stage):
        await stage.job(total_steps=50.0)
        ahead = {"lease_id": 9, "token": 9, "nonce": "0" * 16, "job_id": "lost-job"}
        await tell(stage, report(stage, of_lease(stage), of_lease(stage, **ahead)))
        assert "'lost-job' that it does not know" in caplog.text
        assert stage.ends() == [None]

    live(story)


@pytest.mark.parametrize("node", ["n1", "unknown"])
def test_a_lease_whose_number_another_node_has_now_tells_that_entries_are_lost(live, caplog, node):
    async def story(stage):
        await stage.job(total_steps=50.0)
        assert stage.store.attempts("job")[0].nodes == ("n0",)
        other = {"nonce": "0" * 16, "job_id": "lost-job"}
        end = of_lease(stage, state=LeasePhase.ENDED, reason=EndReason.CANCELLED, **other)
        await tell(stage, replace(report(stage, end), node=node))
        assert f"node '{node}' holds leases of 'lost-job' that it does not know" in caplog.text
        assert stage.ends() == [None]

    live(story, nodes=GANG)


def test_a_report_that_was_overtaken_changes_nothing(live):
    async def story(stage):
        await stage.job(total_steps=50.0)
        end = of_lease(stage, state=LeasePhase.ENDED, reason=EndReason.FAILED)
        await tell(stage, report(stage, end, sequence=0))
        assert stage.ends() == [None]
        assert stage.service.nodes()[0].version == "test"

    live(story)


def test_an_agent_is_told_of_a_later_one_of_its_name_and_heard_again_when_that_is_gone(live):
    async def story(stage):
        await stage.job(total_steps=500.0)
        stage.links["n0"].cut = True
        older = stage.node("n0").incarnation - 1.0
        running = of_lease(stage, state=LeasePhase.RUNNING)
        end = of_lease(stage, state=LeasePhase.ENDED, reason=EndReason.FAILED)
        with pytest.raises(ConflictError, match="another agent, which was started later"):
            await tell(stage, report(stage, end, incarnation=older))
        assert stage.ends() == [None]
        state = stage.state.nodes.by_name["n0"]
        state.last_seen_s = stage.clock.now_s() - OTHER_AGENT_S - 1.0  # the later one is gone
        await tell(stage, report(stage, running, incarnation=older))
        assert (state.incarnation, stage.ends()) == (older, [None])
        await tell(stage, report(stage, end, incarnation=older, sequence=10**6 + 1))
        assert stage.ends()[0] == "failed"

    live(story)


def test_a_lease_under_another_token_is_not_the_one_that_was_granted(live):
    async def story(stage):
        await stage.job(total_steps=50.0)
        foreign = of_lease(stage, token=99, state=LeasePhase.ENDED, reason=EndReason.COMPLETED)
        await tell(stage, report(stage, foreign))
        assert stage.ends()[0] == "lost"

    live(story)


def test_an_end_that_is_told_twice_happens_once(live):
    async def story(stage):
        await stage.job(total_steps=50.0)
        end = of_lease(stage, state=LeasePhase.ENDED, reason=EndReason.FAILED, exit_code=3)
        stage.links["n0"].cut = True
        service = stage.service
        first = stage._spawn(service.report(report(stage, end), address="a", version="v"))
        second = report(stage, end, sequence=10**6 + 1)
        await stage.do(service.report(second, address="a", version="v"))
        assert first.done()
        await tell(stage, report(stage, end, sequence=10**6 + 2))
        assert stage.row().failures == 1
        assert stage.store.attempts("job")[0].exit_code == 3

    live(story)
