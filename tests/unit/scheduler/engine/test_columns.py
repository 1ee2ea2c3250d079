"""Ends of leases in columns have the effect of the same ends one by one."""

import numpy as np
import pytest

from leasehold_testing.shell import folded
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.lease_life import EndReason
from scheduler.engine.snapshot import dump, encode_state
from scheduler.errors import InputError


def released(lease_id, steps_done=0.0, **values):
    return ev.LeaseEnded(
        lease_id=lease_id, reason=EndReason.RELEASED, steps_done=steps_done, **values
    )


@pytest.fixture
def crowd(start, job):
    """Six jobs that take turns on three workers of two types; the twin hears ends one by one."""
    shell = start(
        cluster="type-0:2,type-1:1", rates=((1.0, 2.0),), fold_ends=True, release_delay_s=5.0
    )
    for i in range(6):
        shell.submit(job(f"job-{i}"))
    return shell


def test_a_round_hands_its_workers_over_in_one_command(crowd):
    while not crowd.engine.book.planned:
        crowd.run(until_s=crowd.now + 100.0)
    ended = sorted(crowd.engine.book.stopping)
    planned = list(crowd.engine.book.planned)
    assert len(planned) > 1
    names = [crowd.engine.book.leases[lease_id].job_id for lease_id in ended]
    crowd.now = crowd.engine.now_s + 5.0
    event = ev.LeasesReleased(lease_ids=np.array(ended), steps_done=np.full(len(ended), 7.0))
    (command,) = crowd.engine.handle_columns(event, now=crowd.now)
    assert isinstance(command, do.HandOver)
    assert (command.ended.tolist(), list(command.job_ids)) == (ended, names)
    assert sorted(command.leases.job_number.tolist()) == sorted(planned)
    crowd.engine.check_invariants()
    single = crowd.twin.handle(*map(released, ended, [7.0] * len(ended)), now=crowd.now)
    assert do.one_by_one([command]) == single
    assert encode_state(dump(crowd.engine)) == encode_state(dump(crowd.twin))


def test_a_release_that_is_repeated_or_unknown_changes_nothing(crowd):
    while not crowd.engine.book.stopping:
        crowd.run(until_s=crowd.now + 100.0)
    over, *others = sorted(crowd.engine.book.stopping)
    crowd.tell(released(over, 3.0))
    event = ev.LeasesReleased(
        lease_ids=np.array([over, *others, 999]), steps_done=np.full(len(others) + 2, 4.0)
    )
    crowd.engine.handle(event, now=crowd.now)
    crowd.twin.handle(*map(released, others, [4.0] * len(others)), now=crowd.now)
    crowd.engine.check_invariants()
    assert encode_state(dump(crowd.engine)) == encode_state(dump(crowd.twin))


@pytest.mark.parametrize(
    ("lease_ids", "steps_done", "message"),
    [
        ([1, 2], [0.0], "2 leases ended with 1 step counts; give one for each lease"),
        ([2, 2], [0.0, 0.0], r"leases \[2, 2\] ended; name each only once"),
        ([1, 2], [0.0, -1.0], r"lease 2 ended with -1\.0 steps done; it must be a number >= 0"),
        ([1, 2], [np.nan, 1.0], "lease 1 ended with nan steps done"),
        ([1, 2], [0.0, np.inf], "lease 2 ended with inf steps done"),
    ],
)
def test_releases_that_cannot_be_are_refused(crowd, lease_ids, steps_done, message):
    event = ev.LeasesReleased(lease_ids=np.array(lease_ids), steps_done=np.array(steps_done))
    with pytest.raises(InputError, match=message):
        crowd.engine.handle(event, now=crowd.now)


def test_only_plain_releases_are_told_as_columns():
    lost = ev.LeaseEnded(lease_id=3, reason=EndReason.LOST, steps_done=0.0)
    single = released(5, unstarted=(1,)), released(6, ran_s=2.0)
    first, other, *rest = folded([released(1), released(2, 4.0), lost, *single, released(7)])
    assert first.lease_ids.tolist() == [1, 2]
    assert first.steps_done.tolist() == [0.0, 4.0]
    assert [other, *rest[:2]] == [lost, *single]
    assert rest[2].lease_ids.tolist() == [7]
    again = folded([released(1), released(1)])
    assert [event.lease_ids.tolist() for event in again] == [[1], [1]]
