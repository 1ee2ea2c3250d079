"""Snapshots survive storage; damage and other versions are named. Their law: test_machine."""

import pytest

from scheduler.domain.codec import encode
from scheduler.domain.facts import events as ev
from scheduler.engine.snapshot import decode_state, dump, encode_state, restore
from scheduler.errors import CodecError


@pytest.fixture
def busy(start, job):
    """Return a shell with jobs that run, wait, are held and are about to be moved."""
    shell = start("type-0:3", rates=[[1.0]], settings={"plan_lead_s": 30.0}, release_delay_s=20.0)
    for name in "abcde":
        shell.submit(job(name))
    shell.tell(ev.JobHeld(job_id="b"))
    shell.run(until_s=185.0)
    assert shell.engine.book.planned
    return shell


def test_a_snapshot_is_what_it_was_whatever_the_engine_does_then(busy):
    stored = dump(busy.engine)
    before = encode_state(stored)
    busy.run(until_s=2_000.0)
    busy.tell(ev.JobCancelled(job_id="a"))
    assert encode_state(stored) == before
    assert encode_state(dump(restore(decode_state(before), busy.engine.settings))) == before


def test_two_engines_of_one_snapshot_do_not_touch_each_other(busy):
    stored = decode_state(encode_state(dump(busy.engine)))
    one, other = (restore(stored, busy.engine.settings) for _ in range(2))
    for name in "acde":
        one.handle(ev.JobCancelled(job_id=name), now=190.0)
    said = other.handle(ev.JobReleased(job_id="b"), now=190.0)
    expected = busy.engine.handle(ev.JobReleased(job_id="b"), now=190.0)
    assert [encode(command) for command in said] == [encode(command) for command in expected]


def test_damage_and_other_versions_are_named(busy):
    data = encode_state(dump(busy.engine))
    with pytest.raises(CodecError, match="begins with b'leasehold-engine-9'; this release reads"):
        decode_state(data.replace(b"engine-1", b"engine-9", 1))
    with pytest.raises(CodecError, match="stored engine state is damaged"):
        decode_state(data[:-20])
    head = data.partition(b"\n")[0] + b"\n"
    import zlib

    with pytest.raises(CodecError, match="stored engine state is a Entity"):
        decode_state(head + zlib.compress(b'{"version":1,"type":"Entity","name":"a","weight":1.0}'))
