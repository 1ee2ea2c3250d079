"""A key of jobs' secret variables is lost: running jobs go on, and others are told what to do."""

from leasehold_testing.hooks import KEY
from scheduler.secret_box import SecretBox


def test_a_running_job_goes_on_and_one_that_is_to_start_is_told(live):
    keys = [KEY]
    box = SecretBox(lambda: tuple(keys))

    async def story(stage):
        secrets = {"secret_env": {"TOKEN": "hush"}}
        running = await stage.job("running", total_steps=60.0, **secrets)
        await stage.wait(5)
        keys.clear()
        await stage.restart()
        await stage.wait(30)
        assert stage.status(running) == "running"
        assert [row.end_reason for row in stage.store.attempts(running)] == [None]
        keys.append(KEY)
        await stage.job("later", total_steps=5.0, max_failures=0, **secrets)
        keys.clear()
        await stage.wait(60)
        assert stage.status(running) == "completed"
        assert stage.status("later") == "failed"
        assert "cannot be sent to node 'n0'" in stage.store.attempts("later")[0].message
        assert "put that key back" in stage.store.attempts("later")[0].message

    live(story, box=box)
