"""A project's quota: who uses it, and who gives it back."""

import pytest

from scheduler.control.requests import JobAction, ProjectLimits
from scheduler.domain.reasons import WaitReason
from simulator.nodes import Mishap

CRASHING = [Mishap(steps=0.5) for _ in range(9)]
TWO = {"n0": ("v100", "v100")}


async def limit(stage, workers):
    limits = ProjectLimits(project="p", max_workers=workers)
    await stage.do(stage.service.set_project(limits, actor="boss"))


async def crashing_and(stage, *names, **values):
    """Submit a job that crashes after half a second, and others behind it; one may run."""
    await limit(stage, 1)
    stage.world.mishaps["crash"] = list(CRASHING)
    await stage.job("crash", project="p", max_failures=100, total_steps=50.0)
    for name in names:
        await stage.job(name, project="p", **{"total_steps": 8.0} | values)


def used(stage):
    (view,) = stage.service.projects()
    return view.admitted_workers


def test_a_job_in_backoff_gives_its_quota_to_the_next_one(live):
    async def story(stage):
        await crashing_and(stage, "healthy")
        assert stage.row("healthy").reason == "quota"
        await stage.wait(2)
        assert stage.status("healthy") == "running"
        assert (await stage.explanation("crash")).reason is WaitReason.BACKOFF
        assert used(stage) == 1

    live(story, nodes=TWO, engine={"retry_backoff_s": 30.0})


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_whose_backoff_is_over_waits_for_room_and_comes_before_later_ones(live, restarts):
    async def story(stage):
        await crashing_and(stage, "healthy", "later")
        await stage.wait(5)
        # Its wait of 2 s is over, and the quota is the healthy one's.
        explanation = await stage.explanation("crash")
        assert explanation.reason is WaitReason.QUOTA
        assert "ask for 1, and hold 1 now" in explanation.message
        assert stage.row("crash").reason == "quota"
        assert stage.ends("crash") == ["failed"]
        if restarts:
            await stage.restart()
            assert (await stage.explanation("crash")).reason is WaitReason.QUOTA
        stage.world.mishaps["crash"].clear()
        await stage.wait(6)
        assert stage.status("healthy") == "completed"
        assert (stage.status("crash"), stage.row("crash").reason) == ("running", "")
        assert stage.row("later").reason == "quota"
        await stage.wait(80)
        assert stage.status("crash") == stage.status("later") == "completed"
        assert used(stage) == 0

    live(story, nodes=TWO)


def test_healthy_jobs_go_through_behind_one_that_crashes_for_ever(live):
    async def story(stage):
        names = [f"h{i}" for i in range(4)]
        await crashing_and(stage, *names)
        await stage.wait(60)
        assert [stage.status(name) for name in names] == ["completed"] * 4

    live(story, nodes=TWO)


def test_a_lifted_quota_lets_a_job_run_that_waited_for_room(live):
    async def story(stage):
        await crashing_and(stage, "healthy", total_steps=100.0)
        await stage.wait(5)
        assert (await stage.explanation("crash")).reason is WaitReason.QUOTA
        await limit(stage, None)
        await stage.wait(1)
        assert len(stage.ends("crash")) == 2

    live(story, nodes=TWO)


@pytest.mark.parametrize("when_s", [1, 5])
def test_jobs_that_gave_their_quota_back_can_be_held_released_and_cancelled(live, when_s):
    async def story(stage):
        await crashing_and(stage, "healthy", total_steps=12.0)
        await stage.wait(when_s)
        await stage.act(JobAction.HOLD, "crash")
        assert (await stage.explanation("crash")).reason is WaitReason.HELD
        await stage.wait(20)
        assert stage.status("healthy") == "completed"
        assert used(stage) == 0
        assert len(stage.ends("crash")) == 1
        await stage.act(JobAction.RELEASE, "crash")
        await stage.wait(1)
        assert len(stage.ends("crash")) == 2
        await stage.act(JobAction.CANCEL, "crash")
        await stage.wait(1)
        assert stage.status("crash") == "cancelled"
        assert not any(stage.state.jobs.admitted.values())

    live(story, nodes=TWO)
