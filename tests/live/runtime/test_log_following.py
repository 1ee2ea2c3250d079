"""Output that is read to its end: marks of agents, attempts, restarts, and what never came."""

import asyncio

import pytest

from scheduler.control.facts.requests import JobAction
from scheduler.errors import NotLeadingError
from scheduler.logs import following
from scheduler.logs.output import LogEnd, LogGap, LogWanted
from simulator.world.nodes import Mishap


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(following, "FOLLOW_S", 0.0)
    monkeypatch.setattr(following, "SETTLE_S", 0.05)


class Follower:
    """A reader that follows a job's output."""

    def __init__(self, stage, **wanted):
        self.chunks, self.end = [], None
        wanted = LogWanted(**{"follow": True} | wanted)
        self.task = asyncio.ensure_future(self._run(stage.service.follow_log("job", wanted)))

    async def _run(self, pieces):
        async for piece in pieces:
            if isinstance(piece, LogEnd):
                self.end = piece
            else:
                self.chunks.append(piece)

    @property
    def text(self):
        return b"".join(chunk.data for chunk in self.chunks)

    async def over(self):
        await asyncio.wait_for(self.task, 30.0)
        return self.end

    async def stays(self):
        await asyncio.sleep(0.02)
        assert not self.task.done()


async def done(stage, **values):
    """Let a job run to its end under lease 1."""
    await stage.job(total_steps=2.0, **values)
    await stage.wait(6)
    assert stage.status() == "completed"


async def put(stage, data, *, lease=1, stream="out", offset=0, end=None):
    await stage.service.append_log("n0", lease, stream, offset=offset, data=data, end=end)


def test_a_job_that_has_ended_is_followed_until_both_streams_have_their_marks(live):
    async def story(stage):
        await done(stage)
        follower = Follower(stage)
        await follower.stays()
        await put(stage, b"the la", end=False)
        await put(stage, b"", stream="err", end=True)
        await follower.stays()
        await put(stage, b"st", offset=6, end=True)
        assert await follower.over() == LogEnd(complete=True)
        assert follower.text == b"the last"

    live(story)


def test_who_wants_one_stream_waits_for_its_mark_alone(live):
    async def story(stage):
        await done(stage)
        await put(stage, b"all", end=True)
        assert await Follower(stage, stream="out").over() == LogEnd(complete=True)
        await Follower(stage, stream="err").stays()

    live(story)


def test_a_mark_before_which_output_is_missing_is_none(live):
    async def story(stage):
        await done(stage)
        await put(stage, b"", stream="err", end=True)
        await put(stage, b"ab", end=False)
        await put(stage, b"yz", offset=24, end=True)  # does not follow: dropped
        follower = Follower(stage)
        await follower.stays()
        await put(stage, b"cd", offset=2, end=True)
        assert (await follower.over()).complete is True
        assert follower.text == b"abcd"

    live(story)


def test_every_attempt_is_shown_in_order_or_the_newest_or_one(live):
    async def story(stage):
        await stage.job(total_steps=50.0)
        await stage.wait(3)
        await stage.act(JobAction.REQUEUE, "job")
        await stage.wait(15)
        assert len(stage.store.attempts("job")) == 2
        follower = Follower(stage, every=True)
        await put(stage, b"two", lease=2, end=False)
        await put(stage, b"one", end=True)
        await put(stage, b"", stream="err", end=True)
        await follower.stays()
        while stage.status() != "completed":
            await stage.wait(1)
        await put(stage, b"!", lease=2, offset=3, end=True)
        await put(stage, b"", lease=2, stream="err", end=True)
        assert (await follower.over()).complete is True
        assert sorted((c.attempt, c.data) for c in follower.chunks) == [
            (1, b"one"),
            (2, b"!"),
            (2, b"two"),
        ]
        for wanted, text in (
            ({"every": True}, b"onetwo!"),
            ({}, b"two!"),
            ({"attempt": 1}, b"one"),
            ({"attempt": 2, "tail_bytes": 2}, b"o!"),
            ({"tail_bytes": 0}, b""),
            ({"every": True, "since": {"1/n0/out": 2, "2/n0/out": 1}}, b"ewo!"),
        ):
            for follow in (True, False):
                reader = Follower(stage, follow=follow, **wanted)
                assert await reader.over() == LogEnd(complete=True)
                assert reader.text == text

    live(story)


def test_an_attempt_that_has_ended_is_followed_to_its_end_while_the_job_goes_on(live):
    async def story(stage):
        await stage.job(total_steps=5000.0)
        await stage.wait(3)
        await stage.act(JobAction.REQUEUE, "job")
        await stage.wait(15)
        follower = Follower(stage, attempt=1)
        await follower.stays()
        await put(stage, b"one", end=True)
        await put(stage, b"", stream="err", end=True)
        assert (await follower.over()).complete is True
        assert stage.status() == "running"

    live(story)


def test_output_of_an_agent_that_sends_no_marks_is_waited_for_and_then_left_open(live):
    async def story(stage):
        await done(stage)
        await put(stage, b"an old agent's")
        follower = Follower(stage)
        await stage.wait(following.MARK_WAIT_S - 10)
        await put(stage, b" words", offset=14)
        await follower.stays()
        await stage.wait(following.MARK_WAIT_S - 10)
        await follower.stays()  # the new output has restarted the wait
        await stage.wait(11)
        gaps = tuple(LogGap(attempt=1, node="n0", stream=s, told=False) for s in ("out", "err"))
        assert await follower.over() == LogEnd(complete=None, missing=gaps)
        assert follower.text == b"an old agent's words"

    live(story)


def test_an_end_that_never_comes_is_told_after_a_while(live):
    async def story(stage):
        await done(stage)
        await put(stage, b"", stream="err", end=True)
        await put(stage, b"half of i", end=False)
        follower = Follower(stage)
        await follower.stays()
        await stage.wait(following.MARK_WAIT_S + 1)
        gap = LogGap(attempt=1, node="n0", stream="out")
        assert await follower.over() == LogEnd(complete=False, missing=(gap,))
        # A later reader need not wait, and gets the same.
        assert (await Follower(stage).over()).missing == (gap,)

    live(story)


def test_a_node_from_which_nothing_came_leaves_its_end_missing(live):
    async def story(stage):
        await done(stage)
        follower = Follower(stage)
        await stage.wait(following.MARK_WAIT_S + 1)
        assert (await follower.over()).complete is False

    live(story)


def test_a_scheduler_that_has_just_begun_to_lead_gives_agents_time(live):
    async def story(stage):
        await done(stage)
        await stage.wait(1000)
        await stage.restart()
        follower = Follower(stage)
        await follower.stays()
        await put(stage, b"late", end=True)
        await put(stage, b"", stream="err", end=True)
        assert (await follower.over()).complete is True
        await stage.restart()  # marks are kept
        assert await Follower(stage).over() == LogEnd(complete=True)

    live(story)


def test_following_ends_without_an_end_where_nobody_leads_any_more(live):
    async def story(stage):
        await stage.job(total_steps=5000.0)
        await stage.wait(3)
        service, follower = stage.service, Follower(stage)
        await follower.stays()
        await stage.crash()
        with pytest.raises(NotLeadingError):
            await follower.over()
        assert follower.end is None
        for call in (service.follow_log, service.read_log, service.log_end):
            with pytest.raises(NotLeadingError):
                await call("job", LogWanted())

    live(story)


def test_who_only_reads_waits_a_little_for_what_has_just_ended(live, monkeypatch):
    monkeypatch.setattr(following, "SETTLE_S", 30.0)

    async def story(stage):
        await done(stage)
        reading = asyncio.ensure_future(stage.service.log_end("job", LogWanted()))
        await asyncio.sleep(0.01)
        assert not reading.done()
        await put(stage, b"late", end=True)
        await put(stage, b"", stream="err", end=True)
        assert await asyncio.wait_for(reading, 10.0) == LogEnd(complete=True)

    live(story)


def test_explain_quotes_the_last_lines_of_a_failed_jobs_standard_error(live):
    async def story(stage):
        stage.world.mishaps["job"] = [Mishap(steps=1.0)]
        await stage.job(total_steps=5.0, max_failures=0)
        await stage.wait(6)
        assert stage.status() == "failed"
        lines = b"".join(b"line %d\n" % number for number in range(100))
        await put(stage, b"not this\n", end=True)
        await put(stage, lines, stream="err", end=True)
        found = await stage.service.explain(stage.row())
        assert found.stderr_tail.splitlines() == [f"line {n}" for n in range(80, 100)]
        await put(stage, b"x" * 9000, stream="err", offset=len(lines))
        found = await stage.service.explain(stage.row())
        assert found.stderr_tail == "x" * 4096

    live(story)


def test_explain_of_a_job_that_did_not_fail_quotes_nothing(live):
    async def story(stage):
        await done(stage)
        await put(stage, b"a warning\n", stream="err", end=True)
        assert (await stage.service.explain(stage.row())).stderr_tail == ""

    live(story)
