"""A project's quota counts running jobs: holders, waiting jobs, and returns."""

import pytest

from scheduler.control.facts.requests import JobAction, PolicyChoice, ProjectLimits, Submission
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.quota import IdleQuota
from simulator.world.nodes import Mishap

CRASHING = [Mishap(steps=0.5) for _ in range(9)]
TWO = {"n0": ("v100", "v100")}
FOUR = {"n0": ("v100",) * 4}


async def limit(stage, workers, project="p", **more):
    limits = ProjectLimits(project=project, max_workers=workers, **more)
    await stage.do(stage.service.set_project(limits, actor="boss"))


async def crashing_and(stage, *names, **values):
    """Submit a job that crashes after half a second, and others behind it; one may run."""
    await limit(stage, 1)
    stage.world.mishaps["crash"] = list(CRASHING)
    await stage.job("crash", project="p", max_failures=100, total_steps=50.0)
    for name in names:
        await stage.job(name, project="p", **{"total_steps": 8.0} | values)


def running(stage, project="p"):
    """Return the workers that jobs of a project hold now."""
    found = [view.running_workers for view in stage.service.projects()
             if view.limits.project == project]  # fmt: skip
    return sum(found)


async def never_more_than(stage, most, seconds, project="p"):
    """Let time pass, and see at every tenth of a second that a quota is kept."""
    for _ in range(10 * seconds):
        await stage.wait(0.1)
        assert running(stage, project) <= most


def test_a_job_that_waits_for_the_quota_is_known_to_the_policy_and_says_why_it_waits(live):
    async def story(stage):
        await limit(stage, 1)
        await stage.job("a", project="p", total_steps=50.0)
        await stage.job("b", project="p", total_steps=50.0)
        await stage.wait(1)
        assert "b" in stage.state.engine.jobs.number_of
        explanation = await stage.explanation("b")
        assert explanation.reason is WaitReason.QUOTA
        assert explanation.message == (
            "project 'p' uses 1 of its 1 workers, and the job asks for 1; with 1 more it could run "
            "at once, at 1 steps/s"
        )
        (one,) = explanation.quotas
        assert (one.project, one.limit, one.held, one.missing) == ("p", 1, 1, 1)
        assert one.gain_steps_per_s == 1.0
        await stage.restart()
        assert (await stage.explanation("b")).reason is WaitReason.QUOTA

    live(story, nodes=TWO)


def test_at_no_moment_more_runs_than_the_quota_though_jobs_take_turns(live):
    async def story(stage):
        await limit(stage, 1)
        for name in ("a", "b", "c"):
            await stage.job(name, project="p", total_steps=35.0)
        await never_more_than(stage, 1, 150)
        assert {stage.status(name) for name in ("a", "b", "c")} == {"completed"}
        assert sum(len(stage.ends(name)) for name in ("a", "b", "c")) > 3  # they took turns

    live(story, nodes=FOUR, policy=PolicyChoice(name="max_min_fairness"))


def test_a_job_in_backoff_leaves_its_quota_to_the_next_one(live):
    async def story(stage):
        await crashing_and(stage, "healthy")
        await stage.wait(2)
        assert stage.status("healthy") == "running"
        assert (await stage.explanation("crash")).reason is WaitReason.BACKOFF
        assert running(stage) == 1

    live(story, nodes=TWO, engine={"retry_backoff_s": 30.0})


def test_a_job_whose_backoff_is_over_gets_its_turn_among_the_others(live):
    async def story(stage):
        await crashing_and(stage, "healthy", "later")
        stage.world.mishaps["crash"] = stage.world.mishaps["crash"][:1]
        await never_more_than(stage, 1, 100)
        assert {stage.status(n) for n in ("crash", "healthy", "later")} == {"completed"}

    live(story, nodes=TWO)


def test_healthy_jobs_go_through_behind_one_that_crashes_for_ever(live):
    async def story(stage):
        names = [f"h{i}" for i in range(4)]
        await crashing_and(stage, *names)
        await stage.wait(60)
        assert [stage.status(name) for name in names] == ["completed"] * 4

    live(story, nodes=TWO)


@pytest.mark.parametrize("when_s", [1, 5])
def test_jobs_under_a_quota_can_be_held_released_and_cancelled(live, when_s):
    async def story(stage):
        await crashing_and(stage, "healthy", total_steps=12.0)
        await stage.wait(when_s)
        await stage.act(JobAction.HOLD, "crash")
        assert (await stage.explanation("crash")).reason is WaitReason.HELD
        await stage.wait(20)
        assert stage.status("healthy") == "completed"
        assert running(stage) == 0
        await stage.act(JobAction.RELEASE, "crash")
        await stage.wait(1)
        assert len(stage.ends("crash")) >= 2
        await stage.act(JobAction.CANCEL, "crash")
        await stage.wait(1)
        assert stage.status("crash") == "cancelled"
        assert not any(stage.state.jobs.admitted.values())

    live(story, nodes=TWO)


def test_a_lowered_quota_takes_workers_back_at_the_end_of_the_round(live):
    async def story(stage):
        for i in range(3):
            await stage.job(f"j{i}", project="p", total_steps=500.0)
        await stage.wait(1)
        assert running(stage) == 3
        await limit(stage, 1)
        await stage.wait(11)
        assert running(stage) == 1
        ended = [one for i in range(3) for one in stage.ends(f"j{i}") if one]
        assert ended == ["released", "released"]
        await limit(stage, None)
        await stage.wait(1)
        assert running(stage) == 3

    live(story, nodes=FOUR)


def test_a_quota_of_a_worker_type_leaves_other_types_free(live):
    async def story(stage):
        await limit(stage, None, max_workers_of={"v100": 1})
        for i in range(4):
            await stage.job(f"j{i}", project="p", total_steps=500.0)
        for _ in range(30):
            await stage.wait(1)
            held = [live.worker_type for live in stage.state.leases.by_id.values()]
            assert sorted(held) == ["k80", "k80", "v100"]

    live(story, nodes={"n0": ("v100", "v100"), "n1": ("k80", "k80")})


def test_a_quota_of_each_user_holds_for_each(live):
    async def story(stage):
        await limit(stage, None, max_workers_per_user=1)
        for i in range(4):
            spec = stage.spec(project="p", total_steps=500.0)
            await stage.submit(Submission(spec=spec, owner=("ann", "bob")[i % 2], job_id=f"j{i}"))
        await never_more_than(stage, 2, 20)
        owners = [stage.state.jobs.by_id[one.lease.job_id].owner
                  for one in stage.state.leases.by_id.values()]  # fmt: skip
        assert sorted(owners) == ["ann", "bob"]
        waits = next(f"j{i}" for i in range(4) if stage.status(f"j{i}") == "waiting")
        assert "user '" in (await stage.explanation(waits)).message

    live(story, nodes=FOUR)


def test_a_job_that_alone_asks_for_more_of_every_type_it_runs_on_is_refused(live):
    async def story(stage):
        await limit(stage, None, max_workers_of={"v100": 1})
        spec = stage.spec(project="p", scale_factors=(2,), worker_types=("v100",))
        (told,) = await stage.submit(Submission(spec=spec, owner="me"))
        assert (told.code, told.created) == ("quota", False)
        assert told.refusal == (
            "the job asks for 2 workers, and project 'p' may have 1 v100 at once"
        )
        wide = stage.spec(project="p", scale_factors=(2,))
        (told,) = await stage.submit(Submission(spec=wide, owner="me"))
        assert told.created

    live(story, nodes={"n0": ("v100", "v100"), "n1": ("k80", "k80")})


def test_what_a_project_does_not_ask_for_is_lent_and_given_back_when_it_asks(live):
    async def story(stage):
        await limit(stage, 2, "lends", idle_quota=IdleQuota.LEND)
        await limit(stage, 2, "shares", idle_quota=IdleQuota.SHARE)
        for i in range(4):
            await stage.job(f"s{i}", project="shares", total_steps=500.0)
        await stage.wait(1)
        assert running(stage, "shares") == 4
        for i in range(3):
            await stage.job(f"l{i}", project="lends", total_steps=500.0)
        for _ in range(100):
            await stage.wait(0.1)
            assert running(stage, "shares") + running(stage, "lends") <= 4
        await stage.wait(5)
        assert (running(stage, "shares"), running(stage, "lends")) == (2, 2)
        for i in range(3):
            await stage.act(JobAction.CANCEL, f"l{i}")
        await stage.wait(2)
        assert running(stage, "shares") == 4

    live(story, nodes={"n0": ("v100",) * 6})


def test_a_job_that_others_may_not_have_the_workers_of_runs_on_no_lent_ones(live):
    async def story(stage):
        await limit(stage, 2, "lends", idle_quota=IdleQuota.LEND)
        await limit(stage, 1, "shares", idle_quota=IdleQuota.SHARE)
        for i in range(3):
            await stage.job(f"s{i}", project="shares", total_steps=500.0, preemptible=False)
        await never_more_than(stage, 1, 25, "shares")
        await stage.job("soft", project="shares", total_steps=500.0)
        await stage.wait(15)
        assert running(stage, "shares") == 2

    live(story, nodes=FOUR)
