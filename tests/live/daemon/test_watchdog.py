"""A loop that stands still is noticed."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time

from leasehold.daemon.process import watchdog
from leasehold.daemon.process.watchdog import StallWatchdog


def block_the_loop(seconds):
    time.sleep(seconds)


def test_a_stall_is_counted_with_its_length_and_its_place_is_logged(caplog):
    stalls = []

    async def scenario():
        dog = StallWatchdog(threshold_s=0.1, interval_s=0.01, on_stall=stalls.append)
        dog.start(asyncio.get_running_loop())
        await asyncio.sleep(0.05)
        block_the_loop(0.5)
        await asyncio.sleep(0.1)
        block_the_loop(0.3)
        await asyncio.sleep(0.1)
        dog.stop()

    with caplog.at_level(logging.WARNING, logger="leasehold.watchdog"):
        asyncio.run(scenario())
    assert len(stalls) >= 2
    assert max(stalls) >= 0.4  # 0.5 s from the first look after 0.1 s at the latest
    records = [record for record in caplog.records if record.name == "leasehold.watchdog"]
    begun, over = (record.getMessage() for record in records)  # the second stall came too soon
    assert "block_the_loop (test_watchdog.py:" in begun
    assert "\n" not in begun
    assert over.startswith("the event loop moves again after 0.")


def test_a_long_stall_is_told_of_at_doubled_intervals_and_at_its_end(caplog, monkeypatch):
    monkeypatch.setattr(watchdog, "AGAIN_S", 0.2)

    async def scenario():
        dog = StallWatchdog(threshold_s=0.05, interval_s=0.01)
        dog.start(asyncio.get_running_loop())
        await asyncio.sleep(0.05)
        block_the_loop(1.2)
        await asyncio.sleep(0.2)
        dog.stop()

    with caplog.at_level(logging.WARNING, logger="leasehold.watchdog"):
        asyncio.run(scenario())
    told = [r.getMessage() for r in caplog.records if r.name == "leasehold.watchdog"]
    lengths = [float(re.search(r"([\d.]+) s", line)[1]) for line in told]
    assert 3 <= len(told) <= 6  # after 0.05, 0.2, 0.4 and 0.8 s, and at the end
    assert lengths == sorted(lengths)
    assert [line.startswith("the event loop moves again") for line in told] == [
        *[False] * (len(told) - 1),
        True,
    ]


def test_a_loop_that_was_closed_ends_the_watch():
    loop = asyncio.new_event_loop()
    dog = StallWatchdog(threshold_s=0.1, interval_s=0.01)
    loop.close()
    dog.start(loop)
    dog._thread.join(60.0)
    assert not dog._thread.is_alive()
    dog.stop()


def test_stopping_does_not_wait_for_a_stall_to_end():
    stalls = []
    loop = asyncio.new_event_loop()  # it never runs, so it never answers, and the stall never ends
    dog = StallWatchdog(threshold_s=0.01, interval_s=0.01, log_every_s=0, on_stall=stalls.append)
    noticed = threading.Event()
    dog._tell = lambda _begin, _watched: noticed.set()
    dog.start(loop)
    assert noticed.wait(60.0)
    dog.stop()
    assert len(stalls) == 1
    loop.close()


def test_stopping_what_was_never_started_is_nothing():
    StallWatchdog().stop()
