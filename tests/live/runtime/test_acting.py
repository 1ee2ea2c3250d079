"""Cancel, hold, release, requeue and change, wherever a job stands."""

from scheduler.control.facts.requests import JobAction
from scheduler.domain.facts.reasons import WaitReason

CANCEL, HOLD, RELEASE, REQUEUE = JobAction


def test_a_running_job_is_cancelled_at_once_and_keeps_what_it_saved(live):
    async def story(stage):
        await stage.job(total_steps=50.0)
        await stage.wait(2)
        (acted,) = await stage.act(CANCEL, "job")
        assert acted.changed
        assert stage.status() == "cancelled"
        assert stage.ends() == ["cancelled"]
        actors = {row.kind: row.actor for row in stage.history()}
        assert actors["cancel_requested"] == actors["job_submitted"].replace("test", "boss")
        (again,) = await stage.act(CANCEL, "job")
        assert (again.changed, again.error) == (False, "")

    live(story)


def test_a_cancelled_job_runs_on_until_its_node_has_heard_of_it(live):
    async def story(stage):
        await stage.job(total_steps=50.0)
        stage.links["n0"].cut = True
        await stage.act(CANCEL, "job")
        assert stage.status() == "running"
        (view,) = stage.service.leases()
        assert view.state == "stopping"
        await stage.wait(12)  # its lease runs out unheard; the margin goes by
        assert stage.status() == "cancelled"
        assert stage.ends() == ["lost"]

    live(story)


def test_hold_lets_a_job_checkpoint_and_release_lets_it_go_on(live):
    async def story(stage):
        await stage.job(total_steps=8.0)
        await stage.wait(3)
        (acted,) = await stage.act(HOLD, "job")
        assert acted.changed
        assert stage.status() == "held"
        assert stage.ends() == ["released"]
        assert stage.row().steps_done == 3
        assert (await stage.explanation()).reason is WaitReason.HELD
        assert not (await stage.act(HOLD, "job"))[0].changed
        await stage.wait(15)
        assert stage.status() == "held"
        await stage.restart()
        assert stage.status() == "held"
        assert (await stage.act(RELEASE, "job"))[0].changed
        assert not (await stage.act(RELEASE, "job"))[0].changed
        await stage.wait(5.5)
        assert stage.status() == "completed"
        assert stage.ends() == ["released", "completed"]

    live(story)


def test_a_job_that_is_released_before_it_has_left_goes_on_later(live):
    async def story(stage):
        stage.world.leave_s = 0.4
        await stage.job(total_steps=8.0)
        await stage.wait(3)
        await stage.act(HOLD, "job")
        assert stage.status() == "held"
        assert WaitReason.STOPPING in (await stage.explanation()).also
        await stage.act(RELEASE, "job")
        await stage.wait(12)
        assert stage.status() == "completed"

    live(story)


def test_a_job_may_be_held_from_the_start_and_while_it_waits(live):
    async def story(stage):
        await stage.job("a", held=True)
        assert (stage.status("a"), stage.row("a").reason) == ("held", "held")
        await stage.job("b", total_steps=4.0)
        await stage.job("c", total_steps=4.0)
        await stage.act(HOLD, "c")
        assert stage.status("c") == "held"
        await stage.wait(6)
        assert [stage.status(name) for name in "abc"] == ["held", "completed", "held"]
        await stage.restart()
        assert [stage.status(name) for name in "ac"] == ["held", "held"]
        await stage.act(RELEASE, "a", "c")
        await stage.wait(14)
        assert [stage.status(name) for name in "ac"] == ["completed", "completed"]
        assert "job_released" in stage.kinds("c")

    live(story)


def test_a_parked_job_can_be_held_released_and_cancelled(live):
    async def story(stage):
        await stage.job("a", total_steps=6.0)
        await stage.job("b", depends_on=("a",))
        await stage.job("c", depends_on=("a",))
        await stage.act(HOLD, "b")
        await stage.act(CANCEL, "c")
        assert (stage.status("b"), stage.status("c")) == ("held", "cancelled")
        await stage.wait(8)
        assert (stage.status("a"), stage.status("b")) == ("completed", "held")
        await stage.act(RELEASE, "b")
        await stage.wait(8)
        assert stage.status("b") == "completed"

    live(story)


def test_requeue_is_no_failure_and_takes_up_what_has_ended(live):
    async def story(stage):
        await stage.job("a", total_steps=6.0)
        await stage.wait(2)
        assert (await stage.act(REQUEUE, "a"))[0].changed
        await stage.wait(6)
        assert stage.status("a") == "completed"
        assert stage.ends("a") == ["released", "completed"]
        assert stage.row("a").failures == 0

        stage.world.saved.clear()  # the user has cleared the checkpoint
        (acted,) = await stage.act(REQUEUE, "a")
        assert acted.changed
        assert stage.row("a").steps_done == 0
        await stage.restart()
        await stage.wait(8)
        assert stage.status("a") == "completed"
        assert [row.attempt for row in stage.store.attempts("a")] == [1, 2, 3]

        await stage.job("b", total_steps=30.0)
        await stage.wait(3)
        await stage.act(CANCEL, "b")
        assert stage.status("b") == "cancelled"
        await stage.act(REQUEUE, "b")
        await stage.wait(3)
        assert stage.status("b") == "running"

    live(story)


def test_a_job_that_waits_or_is_unknown_or_ended_says_what_cannot_be_done(live):
    async def story(stage):
        await stage.job("a", total_steps=4.0)
        await stage.job("b")
        assert not (await stage.act(REQUEUE, "b"))[0].changed
        (unknown,) = await stage.act(CANCEL, "nobody")
        assert unknown.code == "not_found"
        await stage.wait(5)
        (ended,) = await stage.act(HOLD, "a")
        assert ended.code == "conflict"
        assert "only be requeued" in ended.error
        assert (await stage.act(CANCEL, "a"))[0].code == "conflict"
        await stage.act(CANCEL, "b")
        (again,) = await stage.act(CANCEL, "b")  # the same request, sent again
        assert (again.changed, again.code) == (False, "")

    live(story)


def test_a_deadline_that_has_passed_is_not_taken(live):
    async def story(stage):
        await stage.job("a", total_steps=50.0, deadline_s=stage.clock.now_s() + 5.0)
        await stage.wait(10)
        change = stage.service.change
        past_s = stage.clock.now_s() - 1.0
        (late,) = await stage.do(change(["a"], actor="boss", weight=2.0, deadline_s=past_s))
        assert (late.changed, late.code) == (False, "invalid")
        assert "deadline_s is 1970-01-01T00:00:" in late.error
        assert stage.row("a").weight == 1.0
        # Its own, which has passed meanwhile, is no change.
        own_s = stage.row("a").deadline_s
        (same,) = await stage.do(change(["a"], actor="boss", weight=2.0, deadline_s=own_s))
        assert (same.changed, same.code) == (True, "")

    live(story)


def test_weight_and_deadline_change_in_the_engine_and_in_the_row(live):
    async def story(stage):
        await stage.job("a", total_steps=50.0)
        await stage.job("b", depends_on=("a",))
        change = stage.service.change
        acted = await stage.do(change(["a", "b", "x"], actor="boss", weight=3.0, deadline_s=900.0))
        assert [(a.changed, a.code) for a in acted] == [
            (True, ""),
            (True, ""),
            (False, "not_found"),
        ]
        row = stage.row("a")
        assert (row.weight, row.deadline_s) == (3.0, 900.0)
        jobs = stage.state.engine.jobs
        assert jobs["weight"].tolist() == [3.0]
        assert jobs["deadline_s"].tolist() == [900.0]
        acted = await stage.do(change(["a"], actor="boss", weight=3.0, deadline_s=900.0))
        assert not acted[0].changed
        await stage.do(change(["a"], actor="boss", clear_deadline=True))
        assert stage.row("a").deadline_s is None
        assert jobs["deadline_s"].tolist() == [float("inf")]
        await stage.act(CANCEL, "a")
        (ended,) = await stage.do(change(["a"], actor="boss", weight=1.0))
        assert ended.code == "conflict"

    live(story)


def test_a_parked_job_takes_its_changed_weight_to_the_engine(live):
    async def story(stage):
        await stage.job("a", total_steps=3.0)
        await stage.job("b", depends_on=("a",))
        await stage.do(stage.service.change(["b"], actor="boss", weight=5.0, deadline_s=77.0))
        await stage.wait(4)
        assert stage.state.engine.jobs["weight"].tolist() == [5.0]
        assert stage.state.engine.jobs["deadline_s"].tolist() == [77.0]

    live(story)


def test_the_history_keeps_why_something_was_done(live):
    async def story(stage):
        await stage.job(total_steps=50.0)
        await stage.act(HOLD, "job", reason="the data is wrong")
        await stage.act(CANCEL, "job")
        said = {row.kind: dict(row.data).get("reason") for row in stage.history()}
        assert said["hold_requested"] == "the data is wrong"
        assert said["cancel_requested"] is None
        await stage.act(REQUEUE, "job", reason="it is right now")
        (again,) = [row for row in stage.history() if row.kind == "requeue_requested"]
        assert again.figures == {"reason": "it is right now", "was": "cancelled"}

    live(story)


def test_a_dry_run_says_what_the_action_then_does_and_changes_nothing(live):
    async def story(stage):
        await stage.job("runs", total_steps=50.0)
        await stage.job("held", held=True)
        await stage.job("over")
        await stage.act(CANCEL, "over")
        names = ("runs", "held", "over", "nothing")
        for action in (RELEASE, REQUEUE, HOLD, CANCEL):
            before, lines = [stage.status(name) for name in names[:3]], len(stage.history())
            tried = await stage.act(action, *names, dry_run=True)
            assert [stage.status(name) for name in names[:3]] == before
            assert len(stage.history()) == lines
            assert await stage.act(action, *names) == tried
            await stage.wait(1)

    live(story)
