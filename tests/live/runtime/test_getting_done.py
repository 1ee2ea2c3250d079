"""Programs that know nothing of leases complete, and their losses are reported."""

import pytest

from scheduler.control.facts.requests import JobAction, PolicyChoice, ProjectLimits, Submission
from scheduler.store.queries import HistoryQuery

FAIR = PolicyChoice(name="max_min_fairness")
PLAIN = {"total_steps": None, "duration_s": 40.0}


async def plain_script(stage, name, **values):
    """Submit a script of 40 s that counts nothing and saves nothing."""
    stage.world.silent.add(name)
    stage.world.unsaved.add(name)
    stage.world.totals[name] = 40.0
    await stage.job(name, **PLAIN | values)


async def until_ended(stage, names, *, most_s):
    begin_s = stage.clock.now_s()
    while any(stage.status(name) in {"waiting", "running"} for name in names):
        await stage.wait(1)
        assert stage.clock.now_s() - begin_s < most_s
    return stage.clock.now_s() - begin_s


def test_three_plain_scripts_on_one_worker_get_done(live):
    async def story(stage):
        for name in "abc":
            await plain_script(stage, name)
        assert await until_ended(stage, "abc", most_s=300.0) <= 1.45 * 120.0
        assert max(len(stage.ends(name)) for name in "abc") == 2
        assert not stage.history("job_keeps_nothing")

    live(story, policy=FAIR)


def test_without_patience_they_do_not_and_people_are_told(live):
    async def story(stage):
        for name in "ab":
            await plain_script(stage, name)
        await stage.wait(200)
        (told, *_) = stage.history("job_keeps_nothing")
        assert told.data["times"] == 3
        assert told.data["lost_s"] > 15.0
        message = (await stage.explanation(told.subject)).message
        assert "it keeps nothing when it is preempted" in message
        assert "s of work" in message
        metrics = stage.service.metrics().decode()
        assert "leasehold_jobs_keeping_nothing 2.0" in metrics

    live(story, policy=FAIR, engine={"patience_s": 0.0})


@pytest.mark.parametrize("told", [True, False])
def test_a_checkpoint_ends_the_time_for_which_a_job_is_left_running(live, told):
    async def story(stage):
        stage.world.unsaved.add("job")
        await stage.job(total_steps=1000.0)
        await stage.job("other", total_steps=1000.0)
        while not stage.state.engine.jobs["kept"].any():
            await stage.wait(1)
        assert "may therefore keep workers for up to" in (await stage.explanation()).message
        assert (
            "1 running job keeps its workers for now" in (await stage.explanation("other")).message
        )
        if told:
            stage.world.unsaved.clear()
            stage.world.checkpoint_every = 1.0
        await stage.wait(22)
        assert stage.status() == ("waiting" if told else "running")

    live(story, policy=FAIR)


def test_a_job_that_is_not_preemptible_runs_to_its_end_within_the_share(live):
    async def story(stage):
        await plain_script(stage, "first", preemptible=False)
        await plain_script(stage, "second", preemptible=False)
        await stage.wait(15)
        assert "since it is not preemptible" in (await stage.explanation("first")).message
        await until_ended(stage, ("first", "second"), most_s=120.0)
        assert [stage.ends(name) for name in ("first", "second")] == [["completed"]] * 2

    live(story, policy=FAIR)


def test_it_is_never_preempted_and_waits_for_the_share_of_its_project(live):
    async def story(stage):
        await plain_script(stage, "mine", preemptible=False, project="one")
        await stage.job("yours", total_steps=100.0, project="two")
        await plain_script(stage, "next", preemptible=False, project="one")
        await stage.wait(35)
        assert (stage.status("mine"), stage.status("yours")) == ("running", "waiting")
        while stage.status("mine") != "completed":
            await stage.wait(1)
        await stage.wait(15)
        message = (await stage.explanation("next")).message
        assert "starts within the share of 'one'" in message
        assert "with a max_run_time_s of at most 86400 it starts in its turn" in message
        await until_ended(stage, ("yours", "next"), most_s=200.0)
        assert [stage.ends(name) for name in ("mine", "next")] == [["completed"]] * 2

    live(story, policy=FAIR)


def test_a_quota_bounds_jobs_that_are_not_preemptible(live):
    async def story(stage):
        limits = ProjectLimits(project="one", max_workers=1)
        await stage.do(stage.service.set_project(limits, actor="boss"))
        for name in "ab":
            await plain_script(stage, name, preemptible=False, project="one")
        await stage.wait(20)
        assert [stage.status(name) for name in "ab"] == ["running", "waiting"]
        await until_ended(stage, "ab", most_s=120.0)
        assert [stage.ends(name) for name in "ab"] == [["completed"]] * 2

    live(story, policy=FAIR, nodes={"n0": ("v100", "v100")})


def test_people_may_end_it(live):
    async def story(stage):
        await plain_script(stage, "job", preemptible=False)
        await stage.wait(5)
        await stage.act(JobAction.CANCEL, "job")
        await stage.wait(5)
        assert stage.status() == "cancelled"

    live(story, policy=FAIR)


def test_more_than_the_longest_least_time_is_refused(live):
    async def story(stage):
        (answer,) = await stage.submit(_submission(stage, min_run_time_s=101.0))
        assert not answer.created
        assert "engine.patience_s" in answer.refusal
        (answer,) = await stage.submit(_submission(stage, min_run_time_s=100.0))
        assert answer.created

    live(story, engine={"patience_s": 100.0})


def _submission(stage, **values):
    return Submission(spec=stage.spec("job", **values), owner="me", job_id="job", client_id="")


def test_a_restart_of_the_scheduler_takes_nobody_off(live):
    async def story(stage):
        for name in "ab":
            await plain_script(stage, name)
        while not stage.state.engine.jobs["kept"].any():
            await stage.wait(1)
        await stage.restart()
        assert stage.state.engine.jobs["kept"].any()
        await until_ended(stage, "ab", most_s=200.0)
        assert max(len(stage.ends(name)) for name in "ab") == 2
        rows = stage.store.history(HistoryQuery(kinds=("job_completed",), limit=10))
        assert len(rows) == 2

    live(story, policy=FAIR)
