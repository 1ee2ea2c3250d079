"""The queue of waiting jobs, as explanations show it."""

import pytest

from scheduler.control.facts.requests import PolicyChoice


def test_an_explanation_lists_the_jobs_ahead_with_their_lags_and_plans(live):
    async def story(stage):
        stage.world.leave_s = 1.4
        for name, weight in (("runs", 1.0), ("light", 1.0), ("heavy", 3.0), ("last", 1.0)):
            await stage.job(name, total_steps=100.0, weight=weight, notice_s=1.5)
        # There is one worker. Six seconds into the first round, the next one is planned.
        await stage.wait(6.5)
        passed_s = stage.driver.view.engine.now_s - stage.row("last").submitted_s
        heavy, light = (await stage.explanation("last")).ahead
        # By weight, the heavy job is due half of the time and each other one a sixth.
        assert (heavy.job_id, heavy.is_planned) == ("heavy", True)
        assert heavy.lag_s == pytest.approx(passed_s / 2)
        assert (light.job_id, light.is_planned) == ("light", False)
        assert light.lag_s == pytest.approx(passed_s / 6)
        assert [(await stage.explanation(name)).ahead for name in ("runs", "heavy")] == [(), ()]
        await stage.wait(2)
        assert stage.status("heavy") == "running"

    live(story, policy=PolicyChoice(name="max_min_fairness"))
