"""Troubles of pods: typed in the history and in explanations, also after the lease."""

from scheduler.domain.facts.troubles import Trouble
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.protocol.reports import LeaseReport, NodeReport, WorkerReport


class Talk:
    """Reports of node n0 by hand."""

    def __init__(self, stage):
        self.stage, self.sequence = stage, 10**6

    async def say(self, **values):
        stage = self.stage
        stage.links["n0"].cut = True
        (live,) = stage.state.leases.by_id.values()
        self.sequence += 1
        known = {"lease_id": live.lease.lease_id, "token": live.lease.token}
        told = NodeReport(
            node="n0",
            incarnation=stage.node("n0").incarnation,
            sequence=self.sequence,
            term=stage.state.term,
            revision=10**6,
            workers=(WorkerReport(index=0, worker_type="v100"),),
            leases=(LeaseReport(**known | values),),
        )
        await stage.do(stage.service.report(told, address="a", version="v"))


STARTING = {"state": LeasePhase.STARTING}


def test_what_keeps_a_pod_from_starting_is_told_once_for_each_kind(live):
    async def story(stage):
        talk = Talk(stage)
        await stage.job(total_steps=50.0)
        await talk.say(**STARTING)
        assert (await stage.explanation()).trouble is None
        # A kubelet goes to and fro between the two words.
        for code in ("ErrImagePull", "ImagePullBackOff", "ErrImagePull"):
            await talk.say(**STARTING, reason_code=code, message="manifest unknown")
        await talk.say(**STARTING, reason_code="Unschedulable", message="1 Insufficient cpu")
        found = await stage.explanation()
        assert (found.reason, found.trouble) == (None, Trouble.NO_RESOURCES)
        assert "is being started" in found.message
        assert "Unschedulable: 1 Insufficient cpu" in found.message
        assert "lower the job's requests" in found.unblocks
        lines = [row.data for row in stage.history("lease_waits")]
        assert [(d["code"], d["trouble"]) for d in lines] == [
            ("ErrImagePull", "image"),
            ("Unschedulable", "no_resources"),
        ]
        await talk.say(state=LeasePhase.RUNNING)
        found = await stage.explanation()
        assert (found.trouble, found.unblocks) == (None, "")

    live(story)


def test_a_running_job_whose_gang_cannot_meet_says_what_the_api_server_refuses(live):
    async def story(stage):
        talk = Talk(stage)
        await stage.job(total_steps=50.0)
        running = {"state": LeasePhase.RUNNING}
        await talk.say(**running, reason_code="EvictionByEvictionAPI", message="drained")
        assert (await stage.explanation()).trouble is None, "its end will say so"
        full = "services is forbidden: exceeded quota: few"
        for _ in range(2):
            await talk.say(**running, reason_code="QuotaExceeded", message=full)
        found = await stage.explanation()
        assert (found.status, found.trouble) == ("running", Trouble.QUOTA)
        assert found.message.startswith("it runs on")
        assert f"n0: QuotaExceeded: {full}" in found.message
        (line,) = stage.history("lease_waits")
        assert (line.data["code"], line.data["trouble"]) == ("QuotaExceeded", "quota")
        await talk.say(**running)
        assert (await stage.explanation()).trouble is None

    live(story)


def test_what_ended_a_lease_is_explained_while_the_job_waits_and_after_a_restart(live):
    async def story(stage):
        talk = Talk(stage)
        await stage.job(total_steps=50.0)
        await talk.say(
            state=LeasePhase.ENDED,
            reason=EndReason.FAILED,
            reason_code="StartError",
            message="no such program: trian",
        )
        (line,) = stage.history("lease_ended")
        assert (line.data["code"], line.data["trouble"]) == ("StartError", "start")
        for _ in range(2):
            found = await stage.explanation()
            assert found.status == "waiting"
            assert found.trouble is Trouble.START
            assert "its last lease ended by trouble (StartError: no such program" in found.message
            assert found.reason is not None
            await stage.restart()

    live(story, engine={"retry_backoff_s": 60.0})


def test_a_job_that_failed_for_lack_of_memory_says_what_would_help(live):
    async def story(stage):
        talk = Talk(stage)
        await stage.job(total_steps=50.0, retry_oom=False)
        await talk.say(
            state=LeasePhase.ENDED, reason=EndReason.OOM, reason_code="OOMKilled", exit_code=137
        )
        found = await stage.explanation()
        assert (found.status, found.trouble) == ("failed", Trouble.OUT_OF_MEMORY)
        assert found.unblocks == "give the job more memory; then requeue it"

    live(story)


def test_a_lease_that_ended_well_is_no_trouble(live):
    async def story(stage):
        await stage.job(total_steps=3.0)
        await stage.wait(6)
        found = await stage.explanation()
        assert (found.status, found.trouble) == ("completed", None)
        assert "trouble" not in stage.history("lease_ended")[0].data

    live(story)


def test_why_steps_are_not_seen_is_told_once_and_explained_while_the_job_runs(live):
    async def story(stage):
        talk = Talk(stage)
        # As the release before stored it: RE2 does not know it, and it is not refused any more.
        await stage.job(total_steps=50.0, progress_regex=r"(?<=step )(\d+)")
        desired = await stage.do(stage.service.desired("n0", after=(0, -1), wait_s=0.0))
        (order,) = desired.leases
        assert order.progress_regex == r"(?<=step )(\d+)"
        why = "progress_regex '...' is no regular expression of RE2"
        for _ in range(2):
            await talk.say(state=LeasePhase.RUNNING, progress_problem=why)
        found = await stage.explanation()
        assert found.status == "running"
        assert f"its steps are not seen: {why}" in found.message
        (line,) = stage.history("progress_off")
        assert (line.data["message"], line.data["node"]) == (why, "n0")
        await talk.say(state=LeasePhase.RUNNING)
        assert "not seen" not in (await stage.explanation()).message

    live(story)
