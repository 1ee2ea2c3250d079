"""Reserved workers of a project that has a quota, or a budget."""

import pytest

from scheduler.control.facts.requests import ProjectLimits
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.reservation import Reservation

FOUR = {"n0": ("v100", "v100"), "n1": ("v100", "v100")}


async def reserve(stage, workers, *, project="p", lasts_s=200.0):
    now_s = stage.clock.now_s()
    window = Reservation(
        name="window",
        worker_type="v100",
        workers=workers,
        from_s=now_s + 5.0,
        until_s=now_s + lasts_s,
        project=project,
    )
    await stage.do(stage.service.reserve(window, actor="boss"))


async def limit(stage, **values):
    await stage.do(stage.service.set_project(ProjectLimits(project="p", **values), actor="boss"))


def running(stage, *names):
    return [name for name in names if stage.status(name) == "running"]


@pytest.mark.parametrize("restarts", [False, True])
def test_reserved_workers_count_against_the_quota_of_their_project(live, restarts):
    async def story(stage):
        await limit(stage, max_workers=2)
        await reserve(stage, 3)
        await stage.wait(25)
        names = [f"job-{i}" for i in range(4)]
        for name in names:
            await stage.job(name, project="p", total_steps=1e6)
        for _ in range(4):
            await stage.wait(10)
            if restarts:
                await stage.restart()
            assert len(running(stage, *names)) == 2
        (waiting, _) = [name for name in names if stage.status(name) == "waiting"]
        assert (await stage.explanation(waiting)).reason is WaitReason.QUOTA
        await stage.job("other", project="q", total_steps=1e6)
        await stage.wait(12)
        assert stage.status("other") == "running"  # on the one that is not reserved
        await stage.job("another", project="q", total_steps=1e6)
        await stage.wait(22)
        assert len(running(stage, "other", "another")) == 1  # reserved workers stay idle
        await limit(stage, max_workers=None)
        await stage.wait(22)
        assert len(running(stage, *names)) >= 3  # fifo: the fourth came before the others

    live(story, nodes=FOUR)


def test_a_project_whose_budget_is_spent_has_no_use_of_what_it_has_reserved(live):
    async def story(stage):
        await reserve(stage, 3)
        await limit(stage, budget_gpu_hours=60.0 / 3600)
        await stage.wait(25)
        names = [f"job-{i}" for i in range(3)]
        for name in names:
            await stage.job(name, project="p", total_steps=1e6)
        await stage.wait(5)
        assert running(stage, *names) == names
        await stage.wait(60)
        assert running(stage, *names) == []
        assert {stage.row(name).reason for name in names} == {"budget"}
        await limit(stage, budget_gpu_hours=1.0)
        await stage.wait(15)
        assert running(stage, *names) == names

    live(story, nodes=FOUR)
