"""The plan of the next round, as the service shows it before that round begins."""

from scheduler.control.facts.requests import PolicyChoice

FAIR = PolicyChoice(name="max_min_fairness")


def test_the_plan_shows_which_leases_go_on_and_which_wait_for_workers(live):
    async def story(stage):
        stage.world.unsaved = {"a", "b"}  # each holds its workers until the deadline
        await stage.job("stays", total_steps=1e4, worker_types=("k80",))
        for name in ("a", "b"):
            await stage.job(name, total_steps=1e4, worker_types=("v100",))
        await stage.wait(1)
        first = stage.service.plan()
        assert (first.round_number, first.begins_s) == (None, None)
        for _ in range(60):
            await stage.wait(1)
            plan = stage.service.plan()
            if plan.round_number is not None and not all(one.goes_on for one in plan.leases):
                break
        now_s = stage.control.state.engine.now_s
        assert now_s < plan.begins_s < plan.ends_s
        seen = stage.service.cluster()
        assert (seen.round_number, seen.round_ends_s) == (plan.round_number - 1, plan.begins_s)
        by_job = {one.job_id: one for one in plan.leases}
        held = {one.job_id: one for one in stage.service.leases()}
        (comes,) = {"a", "b"} - held.keys()
        (leaves,) = {"a", "b"} & held.keys()
        assert by_job.keys() == {"stays", comes}
        assert by_job["stays"].goes_on
        assert by_job["stays"].workers == held["stays"].workers
        assert not by_job[comes].goes_on
        assert (by_job[comes].worker_type, by_job[comes].nodes) == ("v100", ("n0",))
        assert by_job[comes].workers == held[leaves].workers
        assert by_job[comes].begins_s >= plan.begins_s
        while stage.control.state.engine.now_s <= plan.begins_s + 2:
            await stage.wait(1)
        assert {one.job_id for one in stage.service.leases()} == {"stays", comes}

    live(story, nodes={"n0": ("v100",), "n1": ("k80",)}, policy=FAIR)
