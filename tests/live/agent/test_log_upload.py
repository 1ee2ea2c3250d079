"""Output on its way to the scheduler: every byte once, over rotations, restarts and outages."""

from __future__ import annotations

import asyncio
import random

import pytest

from agent.logs.job_output import RotatedLog, Stream
from agent.logs.log_files import SENT, make_log_folder, read_piece, stream_file
from agent.logs.log_upload import LogUploader, UploadSettings
from scheduler.errors import InputError

QUICK = UploadSettings(every_s=0.01, piece_bytes=7, retry_least_s=0.01, retry_most_s=0.02)


class Store:
    """The scheduler's handling of output, with faults."""

    def __init__(self):
        self.logs, self.failures, self.calls = {}, [], []
        #: (lease, stream) -> bytes that were there when the end mark came.
        self.ends = {}

    async def append_log(self, lease_id, stream, *, offset, data, end=False, nonce=""):
        self.calls.append((lease_id, stream, offset, len(data)))
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Exception):
            raise failure
        there = self.logs.get((lease_id, stream), b"")
        if data and offset == len(there):
            self.logs[lease_id, stream] = there = there + data
        if end and offset + len(data) == len(there):
            self.ends[lease_id, stream] = len(there)
        if failure == "answer lost":
            raise ConnectionError(failure)
        return len(there)


@pytest.fixture
def log(tmp_path):
    """Makes files of output as the supervisor does."""
    made = []

    def make(lease_id=1, name="stdout.0.log", **more):
        folder = tmp_path / str(lease_id)
        folder.mkdir(exist_ok=True)
        made.append(RotatedLog(path=folder / name, **({"max_bytes": 10**6, "backups": 3} | more)))
        return made[-1]

    yield make
    for file in made:
        file.close()


async def _when(condition):
    while not condition():  # noqa: ASYNC110 - files have no events
        await asyncio.sleep(0.005)


def upload(tmp_path, store, *, until, running=(), settings=QUICK):
    async def main():
        uploader = LogUploader(
            link=store, logs_dir=tmp_path, running=lambda: set(running), settings=settings
        )
        task = asyncio.create_task(uploader.run())
        async with asyncio.timeout(20):
            await _when(until)
        task.cancel()

    asyncio.run(main())


@pytest.mark.parametrize("backups", [0, 1, 3])
def test_what_is_kept_is_read_by_its_offset_since_the_beginning(tmp_path, log, backups):
    draw = random.Random(backups)
    written, file = b"", log(max_bytes=50, backups=backups)
    for _ in range(60):
        data = draw.randbytes(draw.randrange(1, 20))
        file.write(data)
        written += data
        oldest = read_piece(file.path, 0, 1).offset
        assert len(written) - oldest <= 50 * (backups + 1)
        for offset in {oldest, draw.randrange(oldest, len(written)), len(written)}:
            piece = read_piece(file.path, offset, 10)
            assert piece.offset == offset
            assert written[offset : offset + len(piece.data)] == piece.data
            assert piece.data or offset == len(written)


def test_every_byte_arrives_once_in_small_pieces_and_the_lease_is_marked(tmp_path, log):
    out, err = log(), log(name="stderr.0.log")
    out.write(b"a" * 20 + b"b" * 3)
    err.write(b"oops")
    store = Store()
    upload(tmp_path, store, until=(tmp_path / "1" / SENT).exists)
    assert store.logs == {(1, "out"): b"a" * 20 + b"b" * 3, (1, "err"): b"oops"}
    assert store.ends == {(1, "out"): 23, (1, "err"): 4}
    calls = len(store.calls)
    upload(tmp_path, store, until=lambda: True)
    assert len(store.calls) == calls


def test_lost_answers_and_outages_double_and_lose_nothing(tmp_path, log):
    log().write(bytes(range(60)))
    store = Store()
    store.failures = [None, "answer lost", ConnectionError(), None, TimeoutError(), "answer lost"]
    upload(tmp_path, store, until=(tmp_path / "1" / SENT).exists)
    assert store.logs[1, "out"] == bytes(range(60))


def test_a_scheduler_that_lost_its_output_gets_it_again(tmp_path, log):
    file, store = log(), Store()
    file.write(b"first ")

    def arrived():
        if store.logs.get((1, "out")) == b"first " and file.size == 6:
            store.logs[1, "out"] = b""
            file.write(b"second")
        return store.logs.get((1, "out")) == b"first second"

    upload(tmp_path, store, until=arrived, running={1})


def test_a_new_agent_goes_on_where_the_old_one_was(tmp_path, log):
    file, store = log(), Store()
    file.write(b"0123456789")
    upload(tmp_path, store, until=lambda: len(store.logs.get((1, "out"), b"")) == 10, running={1})
    file.write(b"abc")
    store.calls = []
    upload(tmp_path, store, until=(tmp_path / "1" / SENT).exists)
    assert store.logs[1, "out"] == b"0123456789abc"
    assert sum(size for *_, size in store.calls) == 3
    assert store.ends == {(1, "out"): 13, (1, "err"): 0}


def test_an_agent_after_one_that_was_killed_sends_the_rest_and_the_mark(tmp_path, log):
    """The first one was killed after the job's end, before it had sent everything."""
    log().write(b"x" * 700)
    store = Store()
    store.failures = [None] * 3 + [ConnectionError()] * 1000
    upload(tmp_path, store, until=lambda: len(store.failures) < 998)
    assert 0 < len(store.logs[1, "out"]) < 700
    assert store.ends == {}
    store.failures = []
    upload(tmp_path, store, until=(tmp_path / "1" / SENT).exists)
    assert store.logs[1, "out"] == b"x" * 700
    assert store.ends == {(1, "out"): 700, (1, "err"): 0}


def test_a_lease_that_wrote_nothing_is_marked_too_and_one_that_runs_is_not(tmp_path, log):
    (tmp_path / "1").mkdir()
    log(lease_id=2).write(b"abc")
    store = Store()
    upload(
        tmp_path,
        store,
        until=lambda: (tmp_path / "1" / SENT).exists() and store.logs.get((2, "out")) == b"abc",
        running={2},
    )
    assert store.ends == {(1, "out"): 0, (1, "err"): 0}


def test_a_scheduler_that_lost_output_before_the_mark_gets_it_before_the_mark(tmp_path, log):
    log().write(b"0123456789")
    store, running = Store(), {1}

    async def main():
        uploader = LogUploader(
            link=store, logs_dir=tmp_path, running=lambda: running, settings=QUICK
        )
        task = asyncio.create_task(uploader.run())
        await _when(lambda: len(store.logs.get((1, "out"), b"")) == 10)
        store.logs[1, "out"] = b"0123"
        running.clear()
        await _when((tmp_path / "1" / SENT).exists)
        task.cancel()

    asyncio.run(asyncio.wait_for(main(), 20))
    assert store.logs[1, "out"] == b"0123456789"
    assert store.ends[1, "out"] == 10


def test_output_that_was_rotated_away_is_missed_in_words_also_after_a_restart(tmp_path, log):
    file, store = log(max_bytes=10, backups=1), Store()
    for number in range(5):
        file.write(b"%d" % number * 8)
    words = b"\n[24 bytes of output were dropped before they could be sent]\n"
    arrived = len(words) + 16
    upload(
        tmp_path,
        store,
        until=lambda: len(store.logs.get((1, "out"), b"")) == arrived,
        running={1},
    )
    assert store.logs[1, "out"] == words + b"3" * 8 + b"4" * 8
    file.write(b"5" * 8)
    upload(tmp_path, store, until=(tmp_path / "1" / SENT).exists)
    assert store.logs[1, "out"] == words + b"3" * 8 + b"4" * 8 + b"5" * 8


def test_output_that_nobody_wants_is_not_offered_again(tmp_path, log):
    log().write(b"abc")
    store = Store()
    store.failures = [InputError("no such lease")]
    upload(tmp_path, store, until=(tmp_path / "1" / SENT).exists)
    assert store.logs == {}
    assert store.ends == {}  # refused output must not count as whole


def test_a_running_lease_is_sent_while_it_writes_and_ends_when_it_ends(tmp_path, log):
    file, store, running = log(), Store(), {1}
    file.write(b"a")

    async def main():
        uploader = LogUploader(
            link=store, logs_dir=tmp_path, running=lambda: running, settings=QUICK
        )
        task = asyncio.create_task(uploader.run())
        for step in range(10):
            file.write(b"b")
            await _when(lambda step=step: len(store.logs.get((1, "out"), b"")) == step + 2)
        late = log(lease_id=2)
        late.write(b"short")  # began and ended between two looks
        running.clear()
        await _when(lambda: all((tmp_path / name / SENT).exists() for name in "12"))
        task.cancel()

    asyncio.run(asyncio.wait_for(main(), 20))
    assert store.logs == {(1, "out"): b"a" + b"b" * 10, (2, "out"): b"short"}


def test_a_job_that_prints_without_end_keeps_no_later_lease_from_its_output(tmp_path, log):
    loud, running = log(), {1, 2}
    loud.write(b"a" * 7)

    class Printing(Store):
        async def append_log(self, lease_id, stream, **more):
            if lease_id == 1:
                loud.write(b"a" * 7)  # there is always another piece
            if len(self.calls) == 20:
                log(lease_id=2).write(b"hello")
            return await super().append_log(lease_id, stream, **more)

    store = Printing()
    upload(tmp_path, store, until=lambda: (2, "out") in store.logs, running=running)
    assert store.logs[2, "out"] == b"hello"


def test_the_rate_is_bounded(tmp_path, log):
    log().write(b"x" * 400)
    slow = UploadSettings(every_s=0.01, piece_bytes=100, bytes_per_s=2000.0)
    import time

    began_s = time.monotonic()
    upload(tmp_path, Store(), until=(tmp_path / "1" / SENT).exists, settings=slow)
    assert time.monotonic() - began_s > 0.2


def test_lines_of_several_processes_come_together_whole(tmp_path, log):
    import os

    together = log(name="stdout.log")
    streams = []
    for rank in range(2):
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        stream = Stream(
            pipe=os.fdopen(reading, "rb", buffering=0),
            log=log(name=f"stdout.{rank}.log"),
            together=together,
            prefix=b"[%d] " % rank,
        )
        streams.append((stream, writing))
    for rank, text in [(0, b"be"), (1, b"one\ntw"), (0, b"gun\n"), (1, b"o\n"), (0, b"x" * 5000)]:
        os.write(streams[rank][1], text)
        streams[rank][0].pump()
    for stream, writing in streams:
        os.write(writing, b"end")
        os.close(writing)
        while stream.pump():
            pass
        stream.pipe.close()
        stream.log.close()
    together.close()
    lines = (tmp_path / "1" / "stdout.log").read_bytes().splitlines()
    assert lines == [
        b"[1] one",
        b"[0] begun",
        b"[1] two",
        b"[0] " + b"x" * 5000,
        b"[0] end",
        b"[1] end",
    ]
    assert stream_file(tmp_path / "1", "out") == tmp_path / "1" / "stdout.log"
    assert stream_file(tmp_path / "1", "err") is None


@pytest.mark.parametrize("refusal", [InputError("another one of that number"), None])
def test_another_lease_of_the_same_number_has_its_own_output(tmp_path, refusal):
    """It begins while a piece of the first one is on its way."""

    class Slow(Store):
        def __init__(self):
            super().__init__()
            self.asked, self.go_on = asyncio.Event(), asyncio.Event()

        async def append_log(self, lease_id, stream, *, offset, data, end=False, nonce=""):
            if nonce == "first":
                self.asked.set()
                await self.go_on.wait()
                if refusal is not None:
                    raise refusal
                return offset + len(data)
            return await super().append_log(lease_id, stream, offset=offset, data=data, end=end)

    async def main():
        store = Slow()
        uploader = LogUploader(link=store, logs_dir=tmp_path, running=set, settings=QUICK)
        make_log_folder(tmp_path, 1, "first")
        (tmp_path / "1" / "stdout.0.log").write_bytes(b"of the first")
        task = asyncio.create_task(uploader.run())
        async with asyncio.timeout(20):
            await store.asked.wait()
            make_log_folder(tmp_path, 1, "second")
            uploader.begin(1)
            (tmp_path / "1" / "stdout.0.log").write_bytes(b"of the second")
            store.go_on.set()
            await _when((tmp_path / "1" / SENT).exists)
        assert store.logs == {(1, "out"): b"of the second"}
        assert not task.done()
        task.cancel()

    asyncio.run(main())
