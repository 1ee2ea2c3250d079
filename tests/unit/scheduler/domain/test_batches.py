"""Batches of commands stand for the single commands that they replace, in their order."""

import numpy as np

from scheduler.domain.facts import commands as do
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.lease import Lease, Leases
from scheduler.domain.lease_life import RevokeReason

#: As many causes as leases, each another one.
WHY = [Cause(fact=FactKind.JOB_ARRIVED, subject=f"job-{i}") for i in range(3)]


def lease(lease_id, job_id, *workers):
    return Lease(
        lease_id=lease_id,
        attempt=lease_id,
        job_number=10 + lease_id,
        job_id=job_id,
        profile=3,
        configuration=-1,
        workers=workers,
        token=lease_id,
        start_s=1.0,
        deadline_s=9.0,
    )


def together(*leases):
    return Leases(
        first_id=leases[0].lease_id,
        attempt=np.array([x.attempt for x in leases]),
        job_number=np.array([x.job_number for x in leases]),
        job_ids=tuple(x.job_id for x in leases),
        profile=np.array([x.profile for x in leases]),
        configuration=np.array([x.configuration for x in leases]),
        workers=tuple(x.workers for x in leases),
        start_s=1.0,
        deadline_s=9.0,
    )


def test_leases_as_columns_are_the_leases_that_they_were_made_of():
    a, b = lease(5, "a", 0), lease(6, "b", 1, 2)
    both = together(a, b)
    assert list(both) == [a, b]
    assert both.lease(6) == b
    assert [type(value) for value in (b.lease_id, both.lease(6).attempt)] == [int, int]
    assert list(Leases.of(b)) == [b]


def test_grants_and_revocations_come_one_by_one_among_other_commands():
    timer = do.SetTimer(timer="plan", at_s=2.0, cause=WHY[2])
    leases = together(lease(5, "a", 0), lease(6, "b", 1))
    stop = do.RevokeLeases(
        lease_ids=np.array([1, 4]), by_s=3.0, reason=RevokeReason.DRAIN, causes=WHY[:2]
    )
    assert do.one_by_one([stop, timer, do.GrantLeases(leases=leases, causes=WHY[1:])]) == [
        do.RevokeLease(lease_id=1, by_s=3.0, reason=RevokeReason.DRAIN, cause=WHY[0]),
        do.RevokeLease(lease_id=4, by_s=3.0, reason=RevokeReason.DRAIN, cause=WHY[1]),
        timer,
        *(do.GrantLease(lease=each, cause=WHY[i]) for i, each in enumerate(leases, 1)),
    ]


def test_a_lease_follows_the_last_end_that_it_waited_for():
    a, b, c = lease(5, "a", 0), lease(6, "b", 1), lease(7, "c", 2)
    command = do.HandOver(
        ended=np.array([2, 1, 4, 3]),
        job_ids=("p", "q", "r", "s"),
        at_s=1.0,
        leases=together(a, b, c),
        waited_for=np.array([1, 1, 3]),
        causes=WHY,
    )
    assert do.one_by_one([command]) == [
        do.preempted("p", 2, 1.0),
        do.preempted("q", 1, 1.0),
        do.GrantLease(lease=a, cause=WHY[0]),
        do.GrantLease(lease=b, cause=WHY[1]),
        do.preempted("r", 4, 1.0),
        do.preempted("s", 3, 1.0),
        do.GrantLease(lease=c, cause=WHY[2]),
    ]
