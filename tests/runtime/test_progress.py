"""Steps: reported, inferred from time, and learned from."""

import pytest

from scheduler.runtime.protocol import PolicyChoice


def estimate(stage, worker_type, job_type="default/job"):
    return stage.state.estimator.estimate(job_type, 1, worker_type)


def test_a_job_that_only_has_a_duration_counts_its_run_time(live):
    async def story(stage):
        stage.world.totals["job"] = 20.0
        stage.world.silent.add("job")
        await stage.job(total_steps=None, duration_s=20.0, throughputs={})
        await stage.wait(7)
        jobs = stage.state.engine.jobs
        assert jobs["steps_done"].tolist() == pytest.approx([6.0])  # as of the plan at 6.5 s
        stage.node("n0").reboot()
        await stage.wait(0.1)
        assert stage.ends()[0] == "lost"
        assert stage.row().steps_done == pytest.approx(7.0, abs=0.1)
        await stage.wait(60)
        assert stage.status() == "completed"
        assert stage.row().steps_done == 20.0

    live(story)


def test_a_job_that_takes_longer_than_it_said_is_never_taken_for_complete(live):
    async def story(stage):
        stage.world.totals["job"] = 30.0
        stage.world.silent.add("job")
        await stage.job(total_steps=None, duration_s=10.0, throughputs={})
        await stage.wait(25)
        assert stage.status() == "running"
        assert stage.state.engine.jobs["steps_done"].tolist() == pytest.approx([9.9])
        await stage.wait(10)
        assert stage.status() == "completed"

    live(story)


@pytest.mark.parametrize(("folder", "kept"), [("/checkpoints", 8.0), (None, 0.0)])
def test_silent_steps_survive_only_where_there_are_checkpoints(live, folder, kept):
    async def story(stage):
        stage.world.silent.add("job")
        await stage.job(
            total_steps=50.0, checkpoint_dir=folder, throughputs={"v100": 2.0}, job_type="t"
        )
        await stage.wait(4)
        stage.node("n0").reboot()
        await stage.wait(0.1)
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

    live(story, learn=False)


def test_a_job_without_any_measure_runs_until_it_ends(live):
    async def story(stage):
        stage.world.totals["job"] = 12.0
        stage.world.silent.add("job")
        await stage.job(total_steps=None, throughputs={})
        await stage.wait(14)
        assert stage.status() == "completed"
        assert stage.row().steps_done == 3600.0

    live(story, policy=PolicyChoice(name="max_min_fairness"))
