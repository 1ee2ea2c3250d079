"""Why a job gets workers later than it came; and steps are shown only if it counts any."""

import pytest

from scheduler.control.facts.requests import JobAction, ProjectLimits
from scheduler.domain.facts.causes import FactKind

TWO = {"n0": ("v100",), "n1": ("v100",)}


def causes(stage, name):
    """Return in words why a job was admitted and got workers, newest last."""
    lines = stage.history("job_admitted", "lease_granted")
    return [line.cause.words(name) for line in lines if line.subject == name]


def test_a_job_that_waited_for_another_one_says_so(live):
    async def story(stage):
        await stage.job("first", total_steps=5.0)
        await stage.job("then", total_steps=50.0, depends_on=("first",))
        await stage.wait(10)
        assert stage.status("then") == "running"
        admitted, granted = causes(stage, "then")
        assert admitted == "default/first, which it waited for, ended"
        assert "default/first, which it waited for, ended; " in granted
        explanation = await stage.explanation("then")
        assert explanation.granted.fact is FactKind.DEPENDENCY_ENDED
        assert causes(stage, "first")[0] == "it arrived"

    live(story, nodes=TWO)


def test_a_job_that_waited_for_its_quota_says_so(live):
    async def story(stage):
        await stage.do(
            stage.service.set_project(ProjectLimits(project="default", max_workers=1), actor="boss")
        )
        await stage.job("first", total_steps=5.0)
        await stage.job("then", total_steps=50.0)
        await stage.wait(10)
        admitted, granted = causes(stage, "then")
        assert admitted == "it arrived"  # the engine knows it at once; it runs when there is room
        assert "first ended" in granted

    live(story, nodes=TWO)


def test_a_job_that_is_taken_up_again_was_requeued_and_has_not_arrived(live):
    async def story(stage):
        await stage.job(total_steps=3.0)
        await stage.wait(6)
        await stage.act(JobAction.REQUEUE, "job")
        await stage.wait(2)
        assert causes(stage, "job")[2] == "it was requeued"
        assert "it was requeued" in causes(stage, "job")[3]

    live(story)


@pytest.mark.parametrize(("work", "steps"), [({}, 0.0), ({"duration_s": 5.0}, 5.0)])
def test_a_job_that_counts_no_steps_ends_without_any(live, work, steps):
    async def story(stage):
        stage.world.silent.add("job")
        stage.world.totals["job"] = 5.0
        await stage.job(**{"total_steps": None, "throughputs": {}} | work)
        await stage.wait(8)
        assert stage.status() == "completed"
        (line,) = stage.history("lease_ended")
        assert "steps_done" not in line.data
        assert stage.row().steps_done == stage.store.attempts("job")[0].steps_done == steps

    live(story)
