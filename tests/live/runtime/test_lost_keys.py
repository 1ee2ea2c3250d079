"""A key of jobs' secret variables is lost: running jobs go on, and others are told what to do."""

from dataclasses import replace

import pytest

from leasehold_testing.hooks import KEY
from scheduler.runtime.desired_sets import NEEDS_SECRETS, DesiredSets
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


@pytest.mark.parametrize("upload", ["", "0" * 64])
def test_a_lease_that_its_node_does_not_hold_yet_cannot_start_without_its_secrets(live, upload):
    keys = [KEY]
    box = SecretBox(lambda: tuple(keys))

    async def story(stage):
        job = await stage.job("job", total_steps=60.0, secret_env={"TOKEN": "hush"})
        await stage.wait(5)
        keys.clear()
        await stage.crash()
        await stage.start()
        (live_lease,) = stage.state.leases.by_id.values()
        assert not live_lease.members[0].seen
        record = stage.driver.view.jobs.by_id[job]
        as_it_is, record.spec = record.spec, replace(record.spec, upload=upload)
        sets = DesiredSets(lambda *_: None, box)
        told = sets.of(stage.driver.view, "n0", now_s=stage.clock.now_s(), held_s=0.0)
        record.spec = as_it_is
        (lease,) = told.leases
        assert (lease.command, lease.upload, dict(lease.secret_env)) == ((NEEDS_SECRETS,), "", {})

    live(story, box=box)
