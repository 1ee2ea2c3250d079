"""Steps: reported, inferred from time, and learned from."""

import math

import pytest

from scheduler.control.facts.requests import JobAction, PolicyChoice
from scheduler.control.leases.progress import steps_now
from scheduler.domain.lease_life import EndReason
from scheduler.operator_settings import LearningSettings
from simulator.world.nodes import Mishap


def estimate(stage, worker_type, job_type="default/job"):
    return stage.state.knowledge.estimate(job_type, 1, worker_type)


@pytest.mark.parametrize(
    ("leave_s", "folder"), [(math.inf, None), (math.inf, "/checkpoints"), (0.0, None)]
)
@pytest.mark.parametrize("how", ["killed", "preempted"])
def test_run_time_is_kept_only_by_a_program_that_leaves_by_itself(live, leave_s, folder, how):
    async def story(stage):
        stage.world.totals["job"] = 20.0
        stage.world.silent.add("job")
        stage.world.leave_s = stage.world.term_s = leave_s
        await stage.job(total_steps=None, duration_s=20.0, throughputs={}, checkpoint_dir=folder)
        await stage.wait(7)
        jobs = stage.state.engine.jobs
        assert jobs["steps_done"].tolist() == pytest.approx([6.0])  # as of the plan at 6.5 s
        if how == "killed":
            stage.node("n0").reboot()
        else:
            await stage.act(JobAction.REQUEUE, "job")
        await stage.wait(3.5)
        first = stage.store.attempts("job")[0]
        assert first.end_reason.value == ("lost" if how == "killed" else "released")
        safe = 7.0 if how == "preempted" and leave_s == 0.0 else 0.0
        assert first.steps_done == pytest.approx(safe, abs=0.3)
        assert stage.row().steps_done == pytest.approx(safe, abs=0.3)
        # Saved steps are in the folder of this world, also if no report has them.
        await stage.wait(60)
        assert stage.status() == "completed"
        assert stage.row().steps_done == 20.0

    live(story)


def test_run_time_counts_on_from_what_an_earlier_attempt_has_kept(live):
    async def story(stage):
        stage.world.totals["job"] = 100.0
        stage.world.silent.add("job")
        await stage.job(total_steps=None, duration_s=100.0, throughputs={})
        for _ in range(2):
            await stage.wait(8)
            await stage.act(JobAction.REQUEUE, "job")
        await stage.wait(1)
        kept = [row.steps_done for row in stage.store.attempts("job")[:2]]
        assert kept == pytest.approx([8.0, 16.0], abs=1.0)

    live(story)


@pytest.mark.parametrize("work", [{"duration_s": 100.0}, {"total_steps": 100.0}])
def test_run_time_counts_on_over_restarts_of_the_scheduler(live, work):
    async def story(stage):
        stage.world.totals["job"] = 100.0
        stage.world.silent.add("job")
        await stage.job(**{"total_steps": None, "throughputs": {"v100": 1.0}} | work)
        for ran_s in (20.0, 40.0, 60.0):
            await stage.wait(20)
            await stage.restart()
            await stage.wait(1)
            await stage.crash()
            await stage.start()
            await stage.wait(1)
            (lease,) = stage.state.leases.by_id.values()
            done = steps_now(stage.state, lease, now_s=stage.clock.now_s())
            assert done == pytest.approx(stage.clock.now_s() - lease.lease.start_s, abs=0.5)
            assert done >= ran_s

    live(story)


@pytest.mark.parametrize(
    ("work", "shown"),
    [({"duration_s": 20.0}, 5.0), ({}, 0.0), ({"total_steps": 20.0}, 0.0)],
)
def test_people_are_told_the_run_time_of_a_job_that_only_has_a_duration(live, work, shown):
    async def story(stage):
        stage.world.totals["job"] = 20.0
        stage.world.silent.add("job")
        await stage.job(**{"total_steps": None, "throughputs": {}} | work)
        await stage.wait(5)
        assert stage.service.live(["job"])["job"].steps_done == pytest.approx(shown, abs=0.3)
        assert stage.service.leases()[0].steps_done == pytest.approx(shown, abs=0.3)

    live(story)


@pytest.mark.parametrize("end", [EndReason.LOST, EndReason.OOM, EndReason.FAILED])
def test_reported_steps_that_nobody_has_saved_do_not_outlive_their_lease(live, end):
    async def story(stage):
        stage.world.mishaps["job"] = [Mishap(steps=4.0, end=end)]
        await stage.job(total_steps=50.0)
        await stage.wait(5)
        first = stage.store.attempts("job")[0]
        assert first.steps_done == 0
        assert stage.row().steps_done == 0
        message = (await stage.explanation()).message
        assert ("keeps nothing when it is preempted, and has restarted from zero" in message) == (
            end is EndReason.LOST
        )
        assert ("its last attempt: a mishap" in message) == (end is EndReason.FAILED)

    live(story)


def test_a_job_that_takes_longer_than_it_said_is_never_taken_for_complete(live):
    async def story(stage):
        stage.world.totals["job"] = 30.0
        stage.world.silent.add("job")
        await stage.job(total_steps=None, duration_s=10.0, throughputs={})
        await stage.wait(25)
        assert stage.status() == "running"
        # It was said to take 10 s. By now it is expected to take twice its run time.
        jobs = stage.state.engine.jobs
        assert jobs["steps_done"].tolist() == pytest.approx([16.0])
        assert jobs["total_steps"].tolist() == pytest.approx([32.0])
        assert stage.service.live(["job"])["job"].steps_done == pytest.approx(9.9)
        await stage.wait(10)
        assert stage.status() == "completed"

    live(story)


def test_a_job_that_overruns_is_not_served_first_for_that(live):
    """One worker: a job that always seems nearly done would keep it without end."""

    async def story(stage):
        stage.world.totals["long"] = 500.0
        stage.world.silent.add("long")
        await stage.job("long", total_steps=None, duration_s=10.0, throughputs={})
        await stage.wait(25)
        await stage.job("short", total_steps=20.0)
        await stage.wait(60)
        assert stage.status("short") == "completed"
        assert stage.status("long") == "running"

    live(story, policy=PolicyChoice(name="shortest_job_first"))


def test_silent_steps_of_a_job_that_was_killed_are_lost_though_it_has_a_folder(live):
    async def story(stage):
        stage.world.silent.add("job")
        await stage.job(
            total_steps=50.0, checkpoint_dir="/checkpoints", throughputs={"v100": 2.0}, job_type="t"
        )
        await stage.wait(4)
        stage.node("n0").reboot()
        await stage.wait(0.1)
        assert stage.store.attempts("job")[0].steps_done == 0.0

    live(story)


@pytest.mark.parametrize(("folder", "kept"), [("/checkpoints", 8.0), (None, 0.0)])
def test_silent_steps_survive_where_a_job_with_a_folder_leaves_when_asked(live, folder, kept):
    async def story(stage):
        stage.world.silent.add("job")
        await stage.job(
            total_steps=50.0, checkpoint_dir=folder, throughputs={"v100": 2.0}, job_type="t"
        )
        await stage.wait(4)
        await stage.act(JobAction.REQUEUE, "job")
        assert stage.store.attempts("job")[0].steps_done == pytest.approx(kept, abs=0.3)

    live(story)


def test_a_loss_falls_back_to_the_last_checkpoint_and_late_counts_take_nothing_back(live):
    async def story(stage):
        stage.world.checkpoint_every = 3.0
        await stage.job(total_steps=50.0)
        for _ in range(5):
            await stage.wait(1)
        (view,) = stage.service.leases()
        assert view.steps_done == 5
        stage.node("n0").reboot()
        await stage.wait(0.1)
        first = stage.store.attempts("job")[0]
        assert (first.end_reason.value, first.steps_done) == ("lost", 3)
        assert stage.node("n0").runs[2].first == 3

    live(story)


def test_throughputs_are_learned_and_the_table_follows_when_a_round_is_planned(live):
    async def story(stage):
        stage.world.rate = lambda _job, _kind, _workers, _partner: 4.0
        await stage.job(total_steps=200.0, throughputs={"v100": 1.0})
        before = stage.state.engine.table.throughput.max()
        await stage.wait(5)
        assert stage.state.engine.table.throughput.max() == before
        assert estimate(stage, "v100").steps_per_s > 2.0
        await stage.wait(4)
        assert stage.state.engine.table.throughput.max() > 2.0
        await stage.wait(25)
        view = next(v for v in stage.service.throughputs() if v.worker_type == "v100")
        assert view.measured == pytest.approx(4.0, rel=0.05)
        assert (view.source, view.declared) == ("measured", 1.0)
        await stage.restart()
        view = next(v for v in stage.service.throughputs() if v.worker_type == "v100")
        assert view.measured == pytest.approx(4.0, rel=0.05)

    live(story)


def test_nothing_is_learned_where_that_is_off_or_jobs_share_workers(live):
    async def story(stage):
        stage.world.rate = lambda _job, _kind, _workers, _partner: 4.0
        await stage.job(total_steps=200.0, throughputs={"v100": 1.0})
        await stage.wait(20)
        assert estimate(stage, "v100").steps_per_s == pytest.approx(1.0)

    live(story, learning=LearningSettings(learn=False))


def test_a_job_without_any_measure_runs_until_it_ends(live):
    async def story(stage):
        stage.world.totals["job"] = 12.0
        stage.world.silent.add("job")
        await stage.job(total_steps=None, throughputs={})
        await stage.wait(14)
        assert stage.status() == "completed"
        assert stage.row().steps_done == 0.0, "nobody has counted any"

    live(story, policy=PolicyChoice(name="max_min_fairness"))
