"""A command without a report of its node: the node ignores it, or is away."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from scheduler.errors import AdmissionError
from scheduler.runtime.execs import MOST, MOST_OF_JOB, MOST_OF_USER, TAKEN_UP_S, Execs

MEMBER = SimpleNamespace(node="n1", rank=0, local=(0,))
LIVE = SimpleNamespace(lease=SimpleNamespace(lease_id=7), members=(MEMBER,))
JOBS = ("job", *(f"job-{n}" for n in range(40)))
LEASES = SimpleNamespace(by_id={7: LIVE}, of_job=dict.fromkeys(JOBS, 7))


class Clock:
    def __init__(self):
        self.now = 1000.0

    def now_s(self):
        return self.now


async def nothing(*_, **__):
    return None


def execs_at(clock):
    return Execs(
        clock, view=lambda: SimpleNamespace(leases=LEASES), wake=lambda _: None, note=nothing
    )


async def begin(execs, job="job", actor="ann"):
    return await execs.begin(
        job, ["true"], stdin=b"", rank=None, node=None, most_s=9.0, actor=actor
    )


def problem_after(asks):
    """Return the state of a command after so many requests of its node without a report."""

    async def scene():
        clock = Clock()
        execs = execs_at(clock)
        one = await begin(execs)
        told = [len(execs.orders("n1")) for _ in range(asks)]
        assert told == [1, 0, 0][:asks], "it is told once"
        execs.orders("n2")
        clock.now += TAKEN_UP_S
        await execs.read("job", one.exec_id, after=0, wait_s=0.01)
        assert one.done_s is None, "there is still time"
        clock.now += 1.0
        await execs.read("job", one.exec_id, after=0, wait_s=0.01)
        return one.problem

    return asyncio.run(scene())


@pytest.mark.parametrize(("asks", "said"), [(0, "is away"), (1, "is away"), (2, "knows no exec")])
def test_a_node_that_passes_commands_over_is_told_from_one_that_is_away(asks, said):
    problem = problem_after(asks)
    assert problem.startswith("node 'n1' has not begun it within 30 s")
    assert problem.endswith(said)


def test_commands_at_once_are_bounded_by_job_by_user_and_in_all():
    async def scene():
        execs = execs_at(Clock())
        for _ in range(MOST_OF_JOB):
            await begin(execs)
        with pytest.raises(AdmissionError, match="4 of 'ann' and 4 beside this job"):
            await begin(execs)
        for number in range(MOST_OF_USER - MOST_OF_JOB):
            await begin(execs, job=JOBS[1 + number])
        with pytest.raises(AdmissionError, match="16 of 'ann' and 0 beside this job"):
            await begin(execs, job="job-30")
        for number in range(MOST - MOST_OF_USER):
            await begin(execs, job=JOBS[1 + number % 40], actor=f"user-{number // 12}")
        with pytest.raises(AdmissionError, match="at most 64, 16 and 4 may; wait for one to end"):
            await begin(execs, job="job-39", actor="bob")

    asyncio.run(scene())
