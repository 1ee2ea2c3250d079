"""Leases that do not start: they end, and their jobs go elsewhere."""

import pytest

from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.facts.troubles import Trouble
from scheduler.domain.lease_life import EndReason, LeasePhase, RevokeReason
from scheduler.errors import ParameterError
from scheduler.protocol.reports import LeaseReport, NodeReport, WorkerReport
from scheduler.runtime.settings import RuntimeSettings

TWO = {"n0": ("v100",), "n1": ("v100",)}
ONE = {"n0": ("v100",)}


class Talk:
    """Reports of a node by hand: its own agent hears and says nothing any more."""

    def __init__(self, stage, node="n0"):
        self.stage, self.node, self.sequence = stage, node, 10**6

    async def say(self, *leases):
        stage, self.sequence = self.stage, self.sequence + 1
        stage.links[self.node].cut = True
        told = NodeReport(
            node=self.node,
            incarnation=stage.node(self.node).incarnation,
            sequence=self.sequence,
            term=stage.state.term,
            revision=0,
            workers=(WorkerReport(index=0, worker_type="v100"),),
            leases=leases,
        )
        await stage.do(stage.service.report(told, address="a", version="v"))

    def lease(self, **values):
        live = next(
            live for live in self.stage.state.leases.by_id.values() if self.node in live.nodes
        )
        return LeaseReport(lease_id=live.lease.lease_id, token=live.lease.token, **values)

    def not_bound(self):
        return self.lease(
            state=LeasePhase.ENDED,
            reason=EndReason.LOST,
            reason_code="NotBound",
            message="no node has taken the pod after 120 s",
        )

    def starting(self):
        return self.lease(state=LeasePhase.STARTING)


def test_a_lease_that_could_not_be_started_sends_its_job_to_another_node(live):
    async def story(stage):
        talk = Talk(stage)
        talk.stage.links["n0"].cut = True
        await stage.job(total_steps=20.0)
        await talk.say(talk.not_bound())
        await stage.wait(1)
        assert [a.nodes for a in stage.store.attempts("job")] == [("n0",), ("n1",)]
        (line,) = stage.history("job_avoids_node")
        assert line.subject == "job"
        assert line.figures == {"node": "n0", "times": 1, "wait_s": 60.0}
        (ended,) = stage.history("lease_ended")
        assert (ended.data["code"], ended.data["trouble"]) == ("NotBound", "not_bound")
        await stage.wait(30)
        assert (stage.status(), stage.row().failures) == ("completed", 0)

    live(story, nodes=TWO)


def test_where_there_is_no_other_node_the_explanation_says_what_is_avoided(live):
    async def story(stage):
        talk = Talk(stage)
        stage.links["n0"].cut = True
        await stage.job(total_steps=5.0)
        await talk.say(talk.not_bound())
        found = await stage.explanation()
        assert (found.reason, found.trouble) == (WaitReason.BACKOFF, Trouble.NOT_BOUND)
        assert "no workers are left for it but on nodes that it avoids" in found.message
        assert "it avoids n0 for" in found.message
        stage.node("n0").restart_agent()  # its reports count from one again
        stage.links["n0"].cut = False
        await stage.wait(55)
        assert stage.status() == "waiting"
        await stage.wait(35)
        assert stage.status() == "completed"

    live(story, nodes=ONE)


def test_a_lease_that_ran_and_was_lost_is_no_reason_to_avoid_its_node(live):
    async def story(stage):
        talk = Talk(stage)
        stage.links["n0"].cut = True
        await stage.job(total_steps=20.0)
        await talk.say(talk.lease(state=LeasePhase.RUNNING))
        await talk.say(
            talk.lease(state=LeasePhase.ENDED, reason=EndReason.LOST, reason_code="Evicted")
        )
        assert not stage.history("job_avoids_node")

    live(story, nodes=ONE)


@pytest.mark.parametrize("agent", ["hangs", "says nothing new"])
def test_a_lease_that_nobody_starts_is_revoked_whatever_its_agent_does(live, agent):
    async def story(stage):
        talk = Talk(stage)
        stage.links["n0"].cut = True
        await stage.job(total_steps=20.0)
        for _ in range(12):
            # It speaks, so the node is not lost; the lease just does not run.
            await talk.say(*((talk.starting(),) if agent != "hangs" and _on(stage, "n0") else ()))
            await stage.wait(5)
        assert [a.nodes for a in stage.store.attempts("job")][:2] == [("n0",), ("n1",)]
        (overdue,) = stage.history("lease_overdue")
        assert (overdue.data["nodes"], overdue.data["after_s"]) == (["n0"], 10.0)
        (ended, *_) = stage.history("lease_ended")
        assert (ended.data["reason"], ended.data["trouble"]) == ("lost", "not_started")
        (avoids,) = stage.history("job_avoids_node")
        assert avoids.data["node"] == "n0"
        assert stage.status() == "completed"
        assert stage.row().failures == 0

    live(story, nodes=TWO, start_timeout_s=10.0)


def _on(stage, node):
    return any(node in live.nodes for live in stage.state.leases.by_id.values())


def test_a_gang_of_which_one_member_never_starts_is_revoked_everywhere(live):
    async def story(stage):
        talk = Talk(stage, "n1")
        stage.links["n1"].cut = True
        await stage.job(scale_factors=(2,), total_steps=20.0)
        (gang,) = stage.state.leases.by_id.values()
        for _ in range(12):
            if not stage.state.leases.by_id or gang.revoked:
                break
            await talk.say(talk.starting())
            await stage.wait(2)
        assert gang.revoked == RevokeReason.NOT_STARTED
        await stage.wait(30)
        (avoids,) = stage.history("job_avoids_node")
        assert avoids.data["node"] == "n1", "the other member ran"
        assert stage.history("lease_overdue")[0].data["nodes"] == ["n1"]

    live(story, nodes=TWO, start_timeout_s=10.0)


def test_a_lease_that_runs_is_not_taken_for_late_after_a_restart(live):
    async def story(stage):
        await stage.job(total_steps=100.0)
        await stage.wait(30)
        await stage.restart()
        await stage.wait(90)
        assert stage.status() == "completed"
        assert not stage.history("lease_overdue")
        assert len(stage.store.attempts("job")) == 1

    live(story, nodes=ONE, start_timeout_s=10.0)


def test_the_bound_of_a_start_is_a_time():
    with pytest.raises(ParameterError, match="start_timeout_s"):
        RuntimeSettings(start_timeout_s=0.0)
