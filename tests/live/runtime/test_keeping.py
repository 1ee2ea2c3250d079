"""Output that is kept and followed, and its deletion in the end."""

import asyncio

import pytest

from leasehold_testing.output import read_whole
from scheduler.control.facts.facts import BackupRestored
from scheduler.control.facts.requests import JobAction
from scheduler.errors import InputError, NotFoundError, StoreUnavailableError
from scheduler.logs import following
from scheduler.logs.logbook import LogBook
from scheduler.logs.output import LogEnd, LogWanted
from scheduler.runtime.driver.takeover import SKIPPED_LEASES
from scheduler.runtime.retention import DAY_S, Retention
from scheduler.store.queries import HistoryQuery


@pytest.fixture
def book(tmp_path):
    return LogBook(tmp_path / "logs", most_bytes=10)


def text(chunks):
    return b"".join(chunk.data for chunk in chunks)


def read(book, **values):
    usual = {"attempt": None, "stream": "both", "tail_bytes": None}
    return book.read("job-1", **usual | values)


def test_pieces_are_stored_once_in_order(book):
    def append(offset, data):
        return book.append("job-1", 1, "n0", "out", offset=offset, data=data)

    assert append(0, b"abc") == 3
    assert append(0, b"abc") == 3  # repeated
    assert append(2, b"cde") == 5  # overlaps
    assert append(9, b"zzz") == 5  # a hole
    assert append(5, b"") == 5
    assert text(read(book)) == b"abcde"
    assert text(read(book, tail_bytes=2)) == b"de"
    assert read(book, tail_bytes=2)[0].offset == 3


def test_the_older_half_is_dropped_and_offsets_go_on(book):
    at = 0
    for _ in range(7):
        at = book.append("job-1", 1, "n0", "out", offset=at, data=b"01234")
    (chunk, *_) = read(book)
    assert at == 35
    assert chunk.offset + len(text(read(book))) == 35
    assert 10 <= len(text(read(book))) <= 20
    assert book.append("job-1", 1, "n0", "out", offset=35, data=b"!") == 36


def test_output_whose_beginning_is_gone_is_kept_from_where_it_begins(book):
    assert book.append("job-1", 1, "n0", "out", offset=100, data=b"xy") == 102
    assert read(book)[0].offset == 100


def test_streams_nodes_and_attempts_are_kept_apart(book):
    book.append("job-1", 1, "n0", "out", offset=0, data=b"first")
    book.append("job-1", 2, "n0", "out", offset=0, data=b"o")
    book.append("job-1", 2, "n0", "err", offset=0, data=b"e")
    book.append("job-1", 2, "n1", "out", offset=0, data=b"p")
    assert text(read(book, attempt=1)) == b"first"
    assert text(read(book, stream="err")) == b"e"
    assert {(c.node, c.stream) for c in read(book)} == {
        ("n0", "out"),
        ("n0", "err"),
        ("n1", "out"),
    }
    assert list(book.jobs()) == ["job-1"]
    book.forget("job-1")
    assert read(book) == ()
    book.forget("job-1")


@pytest.mark.parametrize("name", ["../../etc", "", "a/b", ".hidden", "a" * 200])
def test_no_name_leads_out_of_the_folder(book, name):
    with pytest.raises(InputError):
        book.append(name, 1, "n0", "out", offset=0, data=b"x")
    with pytest.raises(InputError):
        book.append("job-1", 1, name, "out", offset=0, data=b"x")
    with pytest.raises(InputError, match="log stream"):
        book.append("job-1", 1, "n0", "other", offset=0, data=b"x")


def test_output_goes_with_its_lease_and_is_followed_to_the_end(live, monkeypatch):
    monkeypatch.setattr(following, "FOLLOW_S", 0.0)

    async def story(stage):
        await stage.job(total_steps=3.0)
        append = stage.service.append_log
        assert await append("n0", 1, "out", offset=0, data=b"hello ") == 6
        with pytest.raises(NotFoundError, match="on node 'n1'"):
            await append("n1", 1, "out", offset=0, data=b"x")
        with pytest.raises(NotFoundError, match="no lease 9"):
            await append("n0", 9, "out", offset=0, data=b"x")
        chunks = []

        async def follow():
            follow_log = stage.service.follow_log
            chunks.extend([c async for c in follow_log("job", LogWanted(follow=True))])

        following = asyncio.ensure_future(follow())
        await asyncio.sleep(0.01)
        await append("n0", 1, "out", offset=6, data=b"world")
        await asyncio.sleep(0.01)
        assert not following.done()
        await stage.wait(4)
        assert stage.status("job") == "completed"
        await asyncio.sleep(0.01)
        assert not following.done()
        await append("n0", 1, "err", offset=0, data=b"!")  # after the end, by the stored row
        await append("n0", 1, "out", offset=11, data=b"", end=True)
        await asyncio.sleep(0.01)
        assert not following.done()
        await append("n0", 1, "err", offset=1, data=b"?\n", end=True)
        await asyncio.wait_for(following, 60.0)
        assert chunks.pop() == LogEnd(complete=True)
        assert text(c for c in chunks if c.stream == "out") == b"hello world"
        assert text(c for c in chunks if c.stream == "err") == b"!?\n"
        whole = await read_whole(stage.service, "job", LogWanted(attempt=1))
        assert sorted(c.stream for c in whole) == ["err", "out"]

    live(story)


def test_jobs_that_ended_long_ago_are_forgotten_with_their_output(live):
    async def story(stage):
        await stage.job("a", total_steps=2.0)
        await stage.job("b", total_steps=9000.0)
        await stage.wait(3)
        await stage.service.append_log("n0", 1, "out", offset=0, data=b"x")
        await stage.wait(1)
        logs = stage.service._logs
        retention = Retention(stage.store, logs, stage.clock, stage.settings)
        assert retention.forget(stage.clock.now_s()) == 0
        assert list(logs.jobs()) == ["a"]
        assert retention.forget(stage.clock.now_s() + 31 * DAY_S) == 1
        assert stage.store.job("a") is None
        assert list(logs.jobs()) == []
        assert stage.status("b") == "running"
        assert stage.history()
        retention.forget(stage.clock.now_s() + 91 * DAY_S)
        assert not stage.history()
        await stage.act(JobAction.CANCEL, "b")

    live(story)


def test_retention_goes_on_when_the_database_was_away(live, caplog):
    async def story(stage):
        calls = []

        class Away(Retention):
            def forget(self, now_s):
                calls.append(now_s)
                if len(calls) == 1:
                    raise StoreUnavailableError("away")
                return len(calls) - 2

        retention = Away(stage.store, stage.service._logs, stage.clock, stage.settings)
        task = asyncio.ensure_future(retention.run())
        for _ in range(3):
            await stage._pass()
            stage.clock.advance(stage.clock.now_s() + 600.0)
        await stage._pass()
        assert len(calls) >= 3
        assert "could not be forgotten" in caplog.text
        task.cancel()

    with caplog.at_level("INFO"):
        live(story)


def test_after_a_restore_no_lease_gets_an_id_that_a_node_may_know(live):
    async def story(stage):
        await stage.job("a", total_steps=100.0)
        await stage.wait(2)
        assert max(stage.state.leases.by_id) < 10
        stage.driver.soon(BackupRestored(leases=SKIPPED_LEASES))
        await stage.job("b", total_steps=100.0, throughputs={"k80": 1.0, "v100": 1.0})
        await stage.wait(25)
        await stage.restart()
        await stage.job("c", total_steps=1.0)
        await stage.wait(25)
        newest = stage.state.engine.newest_lease
        assert newest > SKIPPED_LEASES
        kinds = [row.kind for row in stage.store.history(HistoryQuery(limit=1000))]
        assert kinds.count("restored") == 1

    live(story)
